"""The experiments of the four papers that dupq builds on, with the systems and networks that only they need."""
