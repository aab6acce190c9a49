"""Components of the neighbour graph, their canonical questions and statistics."""
