"""Encoders: networks from token ids to embeddings, one file each, and how they are saved and read."""
