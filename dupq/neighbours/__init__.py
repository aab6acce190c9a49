"""Exact all-pairs search."""
