"""The arguments of each job, and what is looked at before any work: nothing here loads Ray, nor torch where a path or a
setting is wrong."""
