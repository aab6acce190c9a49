"""Steps of the jobs that need a saved encoder."""
