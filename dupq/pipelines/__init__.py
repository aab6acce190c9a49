"""Each job, stage after stage, on one page. Begin with dedup.py."""
