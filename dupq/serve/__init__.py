"""`dupq serve`: the report's explorer over all clusters of a run, from an index in one file, on loopback only."""
