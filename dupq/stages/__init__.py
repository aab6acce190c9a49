"""The Ray shells round the packages: which files go in, which come out, and with what resources."""
