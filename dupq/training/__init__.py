"""Training an encoder in one process: word vectors, pairs and negatives, losses, the loop and its checkpoints."""
