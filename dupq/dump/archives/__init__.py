"""The files of dumps as streams, packed or not."""
