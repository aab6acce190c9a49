"""Word vectors, pairs, losses, the loop, and the choice of thresholds."""
