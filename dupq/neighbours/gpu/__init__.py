"""The search on a GPU: questions, candidates and lists stay on the device until the lists are complete.

device_questions.py  questions on a device, and their lists so far
kernels.py           in Triton: pairs whose quick scores reach a bound
exact_kernels.py     in Triton: exact scores of these pairs, and the best of them
plain.py             both in plain torch, on any device
search.py            the order in which questions are compared, and the whole search
"""
