"""Boilerplate: shingles that stand under many titles, as those of templates, signatures and notes do.

They say nothing of what is asked, so that they are left out of the Jaccard coefficient. Counted are the titles among
the texts that are compared at all: two that fill in one template are, and ordinary phrases hardly ever get there.
Titles are counted, not texts, so that a question that is asked a hundred times in the same words keeps them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq.near_duplicates.pairing import distinct_pairs
from dupq.near_duplicates.shingles import Shingles
from dupq.text.keys import are_among

_TITLES, _SHARE = 5, 1_000


def most_titles(compared: int) -> int:
    """Over how many titles a shingle may stand if so many texts are compared: 5, of 6,000 and more one in 1,000."""
    return max(_TITLES, compared // _SHARE)


def titled_shingles(sets: Shingles, titles: pa.Array, texts: pa.Array) -> np.ndarray:
    """Each shingle of n texts and a hash of the title over it: uint64, shape (m, 2); of texts that are titles, none."""
    hashes = np.array([xxhash.xxh3_64_intdigest(title.encode()) for title in titles.to_pylist()], np.uint64)
    lengths = np.diff(sets.offsets)
    has_body = pc.not_equal(titles, texts).to_numpy(zero_copy_only=False)
    return np.stack([sets.hashes, np.repeat(hashes, lengths)], axis=1)[np.repeat(has_body, lengths)]


def boilerplate(titled: np.ndarray, most: int) -> np.ndarray:
    """The shingles (uint64, sorted) that stand over more than `most` titles; `titled` as `titled_shingles` gives it."""
    shingles = np.sort(distinct_pairs(titled.view(np.int64))[:, 0].view(np.uint64))
    starts = np.flatnonzero(np.append(True, shingles[1:] != shingles[:-1])) if len(shingles) else np.zeros(0, np.int64)
    return shingles[starts[np.diff(np.append(starts, len(shingles))) > most]]


def without_boilerplate(sets: Shingles, shingles: np.ndarray) -> Shingles:
    """`sets` without some shingles (uint64, sorted)."""
    kept = ~are_among(shingles, sets.hashes)
    return Shingles(sets.hashes[kept], np.append(0, np.cumsum(kept))[sets.offsets])
