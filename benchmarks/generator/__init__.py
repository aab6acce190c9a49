"""Archives of any size for benchmarks, in the format of Stack Exchange dumps, with duplicates whose truth is known."""
