"""Data sets of labelled pairs, and the examples that systems learn from and are measured on."""
