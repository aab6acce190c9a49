"""Shingles, MinHash signatures, bands and exact verification."""
