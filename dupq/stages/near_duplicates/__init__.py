"""The near-duplicate stages: texts → exact copies, verified pairs, representatives."""
