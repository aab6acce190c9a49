"""The search on a GPU: quick scores that choose pairs on the chip, and exact ones of those.

sides.py      a block's questions on a device, as exact.Side has them on the host
rows.py       what is multiplied: vectors beside words, so that a product is no less than the score
found.py      pairs whose quick score reaches a bound, and the best of each question, in plain torch on any device
kernels.py    the first of these in Triton
scores.py     exact scores of pairs
finder.py     all of it as a Finder (bounds.py)
"""
