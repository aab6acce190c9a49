"""Networks from token ids to embeddings, one file each, and how they are saved."""
