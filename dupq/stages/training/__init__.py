"""The steps of a training."""
