"""A run on disk: its layout, writing it and reading it."""
