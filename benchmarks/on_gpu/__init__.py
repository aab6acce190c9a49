"""The parts of benchmarks/gpu.py; each is a generator of figures by name."""
