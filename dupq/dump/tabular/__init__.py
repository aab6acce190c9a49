"""Dumps as CSV, TSV or Parquet tables."""
