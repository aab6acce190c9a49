"""The search on a GPU: all questions stay on the device, and so does all that is found, until the lists are done.

device_questions.py  questions on a device, and the best of each so far
kernels.py           in Triton: pairs whose quick scores reach a bound
exact_kernels.py     in Triton: exact scores of these, and the best of them
plain.py             both in plain torch, on any device
search.py            the order in which questions meet, and the whole search
"""
