"""texts → exact copies, verified pairs, representatives."""
