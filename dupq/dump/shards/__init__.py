"""Merging parts into sorted shards."""
