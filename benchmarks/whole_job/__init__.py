"""The whole job over a made archive, measured stage by stage: for benchmarks/scale.py."""
