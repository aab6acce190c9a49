"""The ingest stage: dumps → questions, answers, links, rejects."""
