"""The training stages: questions, links → encoder."""
