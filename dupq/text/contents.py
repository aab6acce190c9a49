"""A hash of what a question says: by it copies are found, and what is as it was in an earlier run."""

import hashlib

import numpy as np
import pyarrow as pa

_BYTES = 16  # two different contents of one question have the same hash with probability 3e-39


def content_hashes(titles: pa.Array, bodies: pa.Array) -> np.ndarray:
    """BLAKE2b of titles and bodies, whatever their white space (int64, shape (n, 2)); null is a content of its own."""
    hashes = [_hash(title, body) for title, body in zip(titles.to_pylist(), bodies.to_pylist(), strict=True)]
    return np.frombuffer(b"".join(hashes), np.int64).reshape(-1, 2)


def _hash(title: str | None, body: str | None) -> bytes:
    said = ["" if text is None else ":" + " ".join(text.split()) for text in (title, body)]
    return hashlib.blake2b("\n".join(said).encode(), digest_size=_BYTES).digest()
