"""Stack Exchange dumps: archives, rows, posts and links; and the built-in sample."""
