"""questions, links → encoder."""
