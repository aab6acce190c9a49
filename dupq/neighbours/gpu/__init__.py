"""The search on a GPU: questions, candidates and lists stay on the device until the lists are complete."""
