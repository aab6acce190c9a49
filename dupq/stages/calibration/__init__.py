"""The calibration stage: embeddings, terms, known duplicates → the model of a pair's probability in this archive."""
