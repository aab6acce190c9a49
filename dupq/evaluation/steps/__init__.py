"""Steps that measure a run, and draw pairs of it for people to judge."""
