"""The driver says when tasks wait for S3."""

import logging
import sys
from collections.abc import Iterator

import pytest
import ray

from dupq import patience
from dupq.execution import nodes
from dupq.execution.tasks import run_tasks
from dupq.patience import Trouble

pytestmark = pytest.mark.usefixtures("ray_started")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a module of tests


def waiting(number: int) -> dict[str, int]:
    """A task that S3 has let wait for 70 seconds."""
    patience._Told.last = -1e9  # the process may have told of an earlier task
    patience._tell(f"s3://bucket/{number}", Trouble("throttled (503)"), 70.0, 530.0)
    return {}


@pytest.fixture
def said() -> Iterator[list[logging.LogRecord]]:
    """What the driver logs."""
    nodes.show()  # what other tests left
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger("dupq").addHandler(handler)
    yield records
    logging.getLogger("dupq").removeHandler(handler)


def test_what_tasks_wait_for_is_one_line_of_the_driver(said: list[logging.LogRecord]) -> None:
    run_tasks("texts", waiting, [(number,) for number in range(3)])
    nodes.show()
    [record] = said
    message = record.getMessage()
    processes, _, rest = message.partition(" ")
    assert 1 <= int(processes) <= 3
    assert rest.startswith("process(es) of tasks wait for S3, one of them for 70 s: s3://bucket/")
    assert rest.endswith(": throttled (503); trying again for 530 s")
    assert record.levelname == "WARNING"
    nodes.show()
    assert said == [record]  # nothing is said twice, nor where nothing waits


def test_a_thread_asks_until_the_job_has_left_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, asked = iter(["ours", "ours", "another"]), []
    monkeypatch.setattr(nodes, "_SECONDS", 0.01)
    monkeypatch.setattr(nodes, "_ours", lambda: next(jobs))
    monkeypatch.setattr(nodes, "show", lambda: asked.append(True))
    nodes._waits_watch("ours")
    assert asked == [True, True]
