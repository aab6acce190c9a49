from collections.abc import Callable

import pytest

from dupq import storage
from dupq.execution.tasks import Report, summarise
from dupq.stages.clusters import clusters, pairs, partition
from dupq.stages.evaluation import ranking, review


def in_this_process(_: str, work: Callable, calls: list[tuple]) -> Report:
    return summarise([(work(*call), 0.0) for call in calls])


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the disk, and without Ray but where a test asks for it."""
    monkeypatch.setattr(storage, "_make_durable", lambda path: None)
    if "ray_started" not in request.fixturenames:
        for stage in (clusters, pairs, partition, ranking, review):
            monkeypatch.setattr(stage, "run_tasks", in_this_process)
