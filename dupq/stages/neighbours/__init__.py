"""embeddings → neighbours."""
