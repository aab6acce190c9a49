"""Accepted answers, against sets."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq import storage
from dupq.stages.ingest import read_accepted_ids, write_accepted_ids
from dupq.tables import QUESTIONS

IDS = st.one_of(st.integers(0, 20), st.integers(0, 2**62))


def write_questions(folder: Path, accepted: list[list[int | None]]) -> list[str]:
    """A file of questions for each list, with these accepted answers."""
    files = []
    for number, ids in enumerate(accepted):
        rows = [
            {"question_id": place, "title": "", "body_html": "", "tags": [], "accepted_answer_id": answer}
            for place, answer in enumerate(ids)
        ]
        files.append(str(folder / f"part-{number:05d}.parquet"))
        storage.write_table(files[-1], pa.Table.from_pylist(rows, QUESTIONS), QUESTIONS)
    return files


@settings(max_examples=100, deadline=None)
@given(
    accepted=st.lists(st.lists(st.one_of(st.none(), IDS), max_size=8), max_size=4),
)
def test_the_answers_that_questions_name_are_accepted(
    accepted: list[list[int | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("accepted")
    named = {answer for ids in accepted for answer in ids if answer is not None}

    write_accepted_ids(write_questions(folder, accepted), str(folder / "accepted.arrow"))
    found = read_accepted_ids(str(folder / "accepted.arrow"))

    assert found.dtype == np.int64
    assert (found[1:] >= found[:-1]).all()
    assert set(found.tolist()) == named


def test_a_local_file_of_ids_is_mapped(tmp_path: Path) -> None:
    uri = str(tmp_path / "accepted.arrow")
    write_accepted_ids(write_questions(tmp_path, [list(range(30_000, 0, -1))]), uri)
    before = pa.total_allocated_bytes()

    found = read_accepted_ids(uri)

    assert pa.total_allocated_bytes() - before < 10_000
    assert found.base is not None
    assert found.tolist() == list(range(1, 30_001))
