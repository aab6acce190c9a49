"""The report of a run: an HTML page with charts, and a summary for the terminal."""
