"""A run on disk: its paths, its writer and its reader."""
