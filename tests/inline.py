"""Jobs without Ray: their tasks run one after the other in this process. What Ray itself does is tested with Ray."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dupq.execution import cluster, tasks
from dupq.execution.task_files import Counts
from dupq.execution.tasks import Report


@contextmanager
def without_ray() -> Iterator[None]:
    """Run all tasks here. Also a decorator of a function, or of a fixture that returns."""
    if tasks.run_tasks is _run_tasks:  # within another
        yield
        return
    for function, other in _OTHERS.items():
        _replace_everywhere(function, other)
    try:
        yield
    finally:
        for function, other in _OTHERS.items():  # also in modules that were imported meanwhile
            _replace_everywhere(other, function)


def _replace_everywhere(used: Callable[..., object], other: Callable[..., object]) -> None:
    for module in [module for name, module in sys.modules.items() if name.startswith(("dupq.", "dupq_papers."))]:
        for name in [name for name, value in vars(module).items() if value is used]:
            setattr(module, name, other)


def _run_tasks(label: str, work: Callable[..., Counts], calls: Sequence[tuple[object, ...]], **_: object) -> Report:
    outcomes = []
    for call in calls:
        counts, peak, written = tasks.recorded(work, *call)
        tasks.note(written)
        outcomes.append((counts, peak))
    return tasks.summarise(outcomes)


def _start(work: Callable[..., object], *arguments: object, **_: object) -> object:
    return work(*arguments)


_OTHERS: dict[Callable[..., object], Callable[..., object]] = {
    tasks.run_tasks: _run_tasks,
    tasks.start: _start,
    tasks.start_stream: lambda work, *arguments, **_: work(*arguments),
    tasks.result_of: lambda value: value,
    cluster.cpus: lambda: 16,
    cluster.gpus: lambda: 0,
    cluster.memory: lambda: 4 << 30,
    cluster.may_grow: lambda: False,
    cluster.check_fits: lambda *_, **__: None,
}
