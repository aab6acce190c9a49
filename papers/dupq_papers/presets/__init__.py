"""The presets of the papers, by the names of their files."""
