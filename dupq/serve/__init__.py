"""`dupq serve`: the report's explorer over all of a run, asked of its tables by DuckDB, on loopback only."""
