"""All-pairs search: the nearest neighbours of every question, and all pairs above a threshold, exactly."""
