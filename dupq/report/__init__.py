"""The report page of a run, and reading a run's tables."""
