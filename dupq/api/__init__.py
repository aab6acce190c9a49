"""What notebooks and scripts call: `dupq.open_run`, `dupq.load_encoder`, `dupq.find_duplicates`. No Ray in it."""
