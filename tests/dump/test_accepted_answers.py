"""Accepted answers, against sets."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dupq import storage
from dupq.stages.ingest import accepted_ids, read_accepted_ids
from dupq.tables import QUESTIONS

IDS = st.one_of(st.none(), st.integers(0, 20), st.integers(0, 2**62))
_COLUMN = pa.schema([QUESTIONS.field("accepted_answer_id")])


def accepted_by(questions: list[list[int | None]]) -> bytes:
    """Of a table of questions for each list, with these accepted answers."""
    return accepted_ids([pa.table([pa.array(ids, pa.int64())], schema=_COLUMN) for ids in questions])


@given(st.lists(st.lists(IDS, max_size=8), max_size=4))
def test_the_answers_that_questions_name_are_accepted(questions: list[list[int | None]]) -> None:
    found = np.frombuffer(accepted_by(questions), np.int64)

    assert (found[1:] >= found[:-1]).all()
    assert set(found.tolist()) == {answer for ids in questions for answer in ids if answer is not None}


def test_a_local_file_of_ids_is_mapped(tmp_path: Path) -> None:
    uri = str(tmp_path / "accepted")
    storage.write_bytes(uri, accepted_by([list(range(30_000, 0, -1))]))
    before = pa.total_allocated_bytes()

    found = read_accepted_ids(uri)

    assert pa.total_allocated_bytes() - before < 10_000
    assert found.base is not None
    assert found.tolist() == list(range(1, 30_001))
