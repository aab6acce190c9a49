"""The parts of benchmarks/gpu.py and benchmarks/train_gpu.py; each is a generator of figures by name."""
