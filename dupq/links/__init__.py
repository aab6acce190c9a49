"""Known duplicates: links, pair files, the sets they form, and their split."""
