"""embeddings, terms, known duplicates → the probability of a pair in this archive."""
