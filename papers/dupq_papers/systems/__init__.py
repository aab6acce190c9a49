"""The systems that the papers compare with, each in a file of its own, over a collection in memory."""
