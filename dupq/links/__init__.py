"""Known duplicates."""
