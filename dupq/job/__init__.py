"""The runner: tables in partitions, and the verbs that make one from others."""
