"""The command line: `dupq JOB …` once installed, and `jobs/JOB.py …`, which are the same."""
