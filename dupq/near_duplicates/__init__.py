"""Near duplicates: shingles, MinHash signatures, bands, candidate pairs and exact verification."""
