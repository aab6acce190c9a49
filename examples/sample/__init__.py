"""The built-in sample archive: a made-up dump whose duplicates are all known."""
