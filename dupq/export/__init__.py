"""A finished run in the formats of other tools: Embedding Atlas, GraphML, Hugging Face datasets, CSV."""
