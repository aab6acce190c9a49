"""dumps → questions, answers, links, rejects."""
