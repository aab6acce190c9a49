"""Signatures of real texts: English, Arabic, code, emoji."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash
from real_texts import real_texts

from dupq.near_duplicates.minhash import text_signatures
from dupq.near_duplicates.shingles import shingle
from dupq.settings.sections import NearDuplicateSettings
from dupq.text.token_arrays import token_texts

pytestmark = pytest.mark.realdata


def test_signatures_are_datasketchs_bit_for_bit(shared_data: Path) -> None:
    """Of every third text: datasketch takes them one by one."""
    for name, every in real_texts(shared_data, 3_000):
        texts = token_texts(pa.array(every[::3], pa.string()))
        hashes, offsets = shingle(texts, 3)
        narrow = (hashes & np.uint64(0xFFFFFFFF)).tolist()
        given = (narrow[begin:end] for begin, end in pairwise(offsets))
        theirs = MinHash.generator(given, num_perm=128, seed=1, scheme="affine32", hashfunc=int)
        ours = text_signatures(texts, NearDuplicateSettings())
        for row, minhash in enumerate(theirs):
            assert (minhash.hashvalues == ours[row]).all(), f"{name}, row {row}"
