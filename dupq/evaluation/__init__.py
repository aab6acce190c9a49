"""Measures, the systems that are compared, and known or planted duplicates."""
