"""Accepted answers, against sets."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq import storage
from dupq.stages.ingest import accepted_ids, read_accepted_ids
from dupq.tables import QUESTIONS

IDS = st.one_of(st.integers(0, 20), st.integers(0, 2**62))
_COLUMN = pa.schema([QUESTIONS.field("accepted_answer_id")])


def write_accepted_ids(uri: str, accepted: list[list[int | None]]) -> None:
    """Of a table of questions for each list, with these accepted answers."""
    storage.write_bytes(uri, accepted_ids([pa.table([pa.array(ids, pa.int64())], schema=_COLUMN) for ids in accepted]))


@settings(max_examples=100, deadline=None)
@given(
    accepted=st.lists(st.lists(st.one_of(st.none(), IDS), max_size=8), max_size=4),
)
def test_the_answers_that_questions_name_are_accepted(
    accepted: list[list[int | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("accepted")
    named = {answer for ids in accepted for answer in ids if answer is not None}

    write_accepted_ids(str(folder / "accepted"), accepted)
    found = read_accepted_ids(str(folder / "accepted"))

    assert found.dtype == np.int64
    assert (found[1:] >= found[:-1]).all()
    assert set(found.tolist()) == named


def test_a_local_file_of_ids_is_mapped(tmp_path: Path) -> None:
    uri = str(tmp_path / "accepted")
    write_accepted_ids(uri, [list(range(30_000, 0, -1))])
    before = pa.total_allocated_bytes()

    found = read_accepted_ids(uri)

    assert pa.total_allocated_bytes() - before < 10_000
    assert found.base is not None
    assert found.tolist() == list(range(1, 30_001))
