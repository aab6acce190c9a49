"""Reading dumps and other questions from CSV, TSV or Parquet tables."""
