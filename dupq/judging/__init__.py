"""A language model reads pairs of questions: the prompt, the client, and how far its answers are trusted."""
