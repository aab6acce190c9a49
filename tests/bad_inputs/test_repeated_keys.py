"""A question that appears twice is refused by every job that reads questions, whichever of its rows is meant."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from fabricated_run import CS
from world import build_world, table

from dupq.errors import DupqError
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.evaluate import EvaluationJob, evaluate
from dupq.pipelines.train import TrainingJob, train


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """In the second of two shards there is a question of the first."""
    build_world(tmp_path)
    first, second = (f"questions/site={CS}/part-0000{number}.parquet" for number in (0, 1))
    row: list[pa.Table] = []
    table(first, lambda found: row.append(found.slice(0, 1)) or found)(tmp_path)  # type: ignore[func-returns-value]
    table(second, lambda found: pa.concat_tables([found, *row]))(tmp_path)
    return tmp_path


JOBS: dict[str, Callable[[str], object]] = {
    "train": lambda place: train(TrainingJob(f"{place}/questions", f"{place}/links", f"{place}/out", "bogdanova-max")),
    "evaluate": lambda place: evaluate(EvaluationJob(f"{place}/questions", f"{place}/links", f"{place}/out")),
    "dedup": lambda place: dedup(DedupJob(f"{place}/questions", f"{place}/encoder", f"{place}/out")),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("job", JOBS)
def test_a_question_that_appears_twice_is_refused(job: str, world: Path) -> None:
    with pytest.raises(DupqError, match=f"{CS}/1 appears more than once"):
        JOBS[job](str(world))
