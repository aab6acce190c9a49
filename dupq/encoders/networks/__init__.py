"""The networks, one file each with its settings. A file added here is a kind of encoder that settings can name."""
