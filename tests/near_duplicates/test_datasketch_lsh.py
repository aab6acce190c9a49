"""Signatures as datasketch's types."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasketch import LeanMinHash, MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq import storage, tables
from dupq.errors import DupqError
from dupq.near_duplicates.in_memory import (
    lean_minhash,
    minhash,
    run_lsh,
    run_settings,
    run_signatures,
    shingle_hash,
    text_minhash,
)
from dupq.near_duplicates.minhash import text_signatures
from dupq.settings import config
from dupq.settings.sections import NearDuplicateSettings

BAKE = "how do i bake bread that is not flat at all in a small oven with an old fan on the left"
WORDS = BAKE.split()
QUESTIONS = {("b.org", 5): BAKE, ("a.org", 7): BAKE + " side", ("a.org", 9): "why does my sail tear"}
CHOSEN = NearDuplicateSettings(permutations=64, threshold=0.7)


@pytest.fixture
def run(tmp_path: Path) -> str:
    """As much of a run as look-ups need."""
    folder = str(tmp_path / "runs" / "1")
    named = {name: getattr(CHOSEN, name) for name in ("permutations", "threshold")}
    assignments = [f"near_duplicates.{name}={value}" for name, value in named.items()]
    storage.write_json(f"{folder}/config.json", config.to_dict(config.load(assignments=assignments)))
    schema = tables.signatures(CHOSEN.permutations)
    for number, site in enumerate(("a.org", "b.org")):
        rows = [(site, key, signature(text)) for (of, key), text in QUESTIONS.items() if of == site]
        columns = [list(column) for column in zip(*rows, strict=True)]
        table = pa.table(columns, schema=schema)
        storage.write_table(f"{folder}/work/signatures/part-{number:05d}.parquet", table, schema)
    return folder


def signature(text: str) -> np.ndarray:
    return text_signatures(pa.array([text]), CHOSEN)[0]


def test_rows_open_as_datasketchs_types_and_are_compared() -> None:
    one, other = (minhash(signature(text)) for text in (BAKE, BAKE + " side"))
    lean = lean_minhash(signature(BAKE))
    assert isinstance(lean, LeanMinHash)
    assert lean.jaccard(other) == one.jaccard(other) == pytest.approx(19 / 20, abs=0.1)
    buffer = bytearray(lean.bytesize())
    lean.serialize(buffer)
    assert LeanMinHash.deserialize(buffer) == lean


@settings(deadline=None)
@given(st.lists(st.sampled_from([*WORDS, "é", "don't", "internationalisation"]), min_size=3, max_size=40))
def test_datasketch_fed_with_shingles_gives_the_same_signature(words: list[str]) -> None:
    shingles = [" ".join(words[start : start + 3]).encode() for start in range(len(words) - 2)]
    theirs = MinHash(num_perm=64, hashfunc=shingle_hash)
    theirs.update_batch(shingles)
    assert theirs.hashvalues.tolist() == signature(" ".join(words)).tolist()


def test_a_minhash_takes_further_shingles() -> None:
    grown = minhash(signature(BAKE))
    grown.update(b"the left side")
    assert grown == minhash(signature(BAKE + " side"))


def test_a_run_gives_the_settings_and_signatures_that_it_used(run: str) -> None:
    assert run_settings(run) == CHOSEN
    signed = list(run_signatures(run))
    assert [part.labels for part in signed] == [["a.org/7", "a.org/9"], ["b.org/5"]]
    assert (signed[1].signatures[0] == signature(BAKE)).all()


def test_texts_are_looked_up_in_a_run(run: str) -> None:
    lsh = run_lsh(run)
    assert sorted(lsh.query(text_minhash(BAKE.upper() + "!", CHOSEN))) == ["a.org/7", "b.org/5"]
    assert lsh.query(text_minhash("Why does my sail tear?", CHOSEN)) == ["a.org/9"]
    assert lsh.query(text_minhash("nothing of the kind", CHOSEN)) == []
    assert (text_minhash("A b?", CHOSEN, is_title=True).hashvalues == signature("a _ b")).all()


def test_a_run_without_signatures_is_an_error(run: str) -> None:
    storage.delete_folder(f"{run}/work/signatures")
    with pytest.raises(DupqError, match="no signatures in work/signatures"):
        run_lsh(run)
