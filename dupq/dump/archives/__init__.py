"""Reading the files of dumps as streams, packed or not."""
