"""12,000 real texts with planted edits: what the lexical filter finds, against comparing all pairs."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from real_texts import real_texts
from test_near_steps import assert_found, find, untitled

from benchmarks.all_pairs import edited
from dupq.text.token_arrays import token_texts

pytestmark = [pytest.mark.realdata, pytest.mark.full]  # test_near_steps.py has a sample

COUNT = 12_000
SHARES = (0.003, 0.01, 0.02, 0.03, 0.035, 0.04, 0.05, 0.08)  # of a text's words that an edit changes


@pytest.fixture(scope="module")
def texts(shared_data: Path) -> list[str]:
    """Bodies of posts, and as many edits and copies of them as make 12,000 texts."""
    generator = random.Random(1)
    sources = (found for name, found in real_texts(shared_data) if name.endswith(" texts"))
    column = token_texts(pa.array([text for source in sources for text in source]))
    real = generator.sample(sorted({text for text in column.to_pylist() if text}), 7_800)
    words = sorted({word for text in real[:2000] for word in text.split()})
    texts = real + generator.choices(real, k=120)
    while len(texts) < COUNT:
        texts.append(edited(generator.choice(real), generator.choice(SHARES), words, generator))
    generator.shuffle(texts)
    return texts


def test_real_near_duplicates_are_found_verified_and_joined(texts: list[str], tmp_path: Path) -> None:
    assert len(texts) == COUNT
    found = find(untitled(pa.array(np.arange(COUNT)), pa.array(texts)), tmp_path)
    assert_found([*range(COUNT)], texts, found)
