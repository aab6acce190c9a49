"""A table of the papers, measured by the command that measures dupq's own."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from inline import without_ray
from trained import TrainedSample

from dupq.cli import main

TABLE = "othman-figures-8-9"


@without_ray()
def test_a_table_of_the_papers_is_measured(
    trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dupq.job.cluster.connect", lambda address: None)  # tasks run in this process
    given = f"--questions={trained_sample.questions}", f"--links={trained_sample.links}", f"--output={tmp_path}"
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", *given, "--quick", f"--table={TABLE}"])
    rows = pq.read_table(tmp_path / "papers" / "quick" / "results.parquet").to_pylist()
    assert {row["table"] for row in rows} == {TABLE}
    assert all(0 < row["ours"] <= 1 for row in rows)
