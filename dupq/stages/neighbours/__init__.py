"""The neighbours stage: embeddings → the neighbours of each question, and pairs above the floor."""
