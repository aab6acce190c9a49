"""A hash of what a question says: by it copies are found, and what is as it was in an earlier run."""

import hashlib
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.text.keys import places_among

_BYTES = 16  # two different contents of one question have the same hash with probability 3e-39


class Contents(NamedTuple):
    """The hashes of what questions of one site say, by their sorted ids."""

    ids: np.ndarray  # int64, (n,)
    hashes: np.ndarray  # int64, (n, 2)

    def are_same(self, ids: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Return whether each of the questions `ids` is here with the same hash (bool)."""
        if not len(self.ids):
            return np.zeros(len(ids), bool)
        places, are_here = places_among(self.ids, ids)
        return are_here & (self.hashes[places] == hashes).all(axis=1)


NO_CONTENTS = Contents(np.zeros(0, np.int64), np.zeros((0, 2), np.int64))


def content_hashes(titles: pa.Array, bodies: pa.Array) -> np.ndarray:
    """BLAKE2b of titles and bodies, whatever their white space (int64, shape (n, 2)); null is a content of its own."""
    hashes = [_hash(title, body) for title, body in zip(titles.to_pylist(), bodies.to_pylist(), strict=True)]
    return np.frombuffer(b"".join(hashes), np.int64).reshape(-1, 2)


def _hash(title: str | None, body: str | None) -> bytes:
    said = ["" if text is None else ":" + " ".join(text.split()) for text in (title, body)]
    return hashlib.blake2b("\n".join(said).encode(), digest_size=_BYTES).digest()
