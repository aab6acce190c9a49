"""Signatures of real texts: English, Arabic, code, emoji."""

from collections.abc import Iterator
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
from dupq.text.tokens import tokens

pytestmark = pytest.mark.realdata


@pytest.fixture(scope="module")
def sources(shared_data: Path) -> list[tuple[str, pa.StringArray, pa.StringArray]]:
    """Name, texts and tokens of each source."""
    read = ((name, pa.array(texts, pa.string())) for name, texts in real_texts(shared_data, 3_000))
    return [(name, texts, token_texts(texts)) for name, texts in read]


def differing(texts: pa.StringArray, found: pa.StringArray) -> Iterator[str]:
    for text, line in zip(texts.to_pylist(), found.to_pylist(), strict=True):
        if line != " ".join(tokens(text)):
            yield text


def test_the_tokens_of_columns_are_those_of_single_texts(sources: list) -> None:
    assert sum(len(texts) for _, texts, _ in sources) > 50_000
    for name, texts, found in sources:
        assert list(differing(texts, found)) == [], name


def test_signatures_are_datasketchs_bit_for_bit(sources: list) -> None:
    """Of every third text: datasketch takes them one by one."""
    for name, _, every in sources:
        texts = every.take(pa.array(np.arange(0, len(every), 3)))
        hashes, offsets = shingle(texts, 3)
        narrow = (hashes & np.uint64(0xFFFFFFFF)).tolist()
        given = (narrow[begin:end] for begin, end in pairwise(offsets))
        theirs = MinHash.generator(given, num_perm=128, seed=1, scheme="affine32", hashfunc=int)
        ours = text_signatures(texts, NearDuplicateSettings())
        for row, minhash in enumerate(theirs):
            assert (minhash.hashvalues == ours[row]).all(), f"{name}, row {row}"
