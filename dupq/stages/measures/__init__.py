"""Measures of runs and of archives."""
