"""Ray plumbing without algorithms: tasks, the cluster, memory, files that tasks exchange."""
