"""A run's tables → its quality, and pairs for people to judge."""
