"""Parsing the XML files of Stack Exchange dumps."""
