"""Rows of the XML files of Stack Exchange dumps."""
