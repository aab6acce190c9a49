"""The Python API, without Ray: `dupq.open_run`, `dupq.load_encoder`, `dupq.find_duplicates`."""
