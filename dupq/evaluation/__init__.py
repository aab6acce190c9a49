"""Evaluation: measures, the systems that are compared, known and planted duplicates, and people's verdicts."""
