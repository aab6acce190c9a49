"""The experiments of the four papers, on any data set: their tables and figures beside what the papers published."""
