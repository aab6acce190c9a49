"""Calls of a step by tasks for several partitions each, which hold something costly, such as an encoder.

A process with a GPU runs several calls at once: tasks on CPUs read, prepare and write partitions while one is computed.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from dupq.job.step import (
    AnyStep,
    Counts,
    Deferred,
    Destination,
    call_step,
    file_of,
    read_inputs,
    unless_finished,
    write_result,
)
from dupq.job.tasks import RETRIES, Report, recorded, result_or_lost, run_tasks, start
from dupq.system import note, prefetch

_AT_ONCE, _AT_ONCE_WITH_GPU = 4, 16  # calls of a process; with a GPU most of them wait for tasks on CPUs


def run_groups(
    name: str,
    step: AnyStep,
    inputs: tuple[object, ...],
    second: Destination | None,
    made: Destination,
    groups: Sequence[Sequence[int]],
    gpus: int,
) -> Report:
    """Run a task per group of partitions; with `gpus`, each has one, and that many run at a time."""
    call = call_on_gpu if gpus else call_step
    calls = [(call, group, step, inputs, second, made) for group in groups]
    more = [f" and {len(group) - 1} more" if len(group) > 1 else "" for group in groups]
    names = [f"{file_of(made, group[0])}{others}" for group, others in zip(groups, more, strict=True)]
    return run_tasks(name, _call_each, calls, gpus=gpus, names=names)


def _call_each(call: Callable[..., Counts], group: Sequence[int], *arguments: object) -> Counts:
    """Call a step for several partitions, some at once; return the sums of what they counted."""
    total = Counter[str]()
    at_once = _AT_ONCE if call is call_step else _AT_ONCE_WITH_GPU
    for counts in prefetch(lambda partition: call(partition, *arguments), group, at_once):
        total.update(counts)
    return dict(total)


def call_on_gpu(
    partition: int, step: AnyStep, inputs: tuple[object, ...], second: Destination | None, made: Destination
) -> Counts:
    """As `call_step` for a step that returns `Deferred`; have tasks on CPUs do all but the computing.

    A process's threads alone would feed a GPU with a tenth of what it computes. What the tasks prepare and what is
    computed pass through Ray's store. Raises ClusterError if a task's workers die repeatedly.
    """
    what = f"{step.name}: {file_of(made, partition)}"

    def make() -> Counts:
        prepared = start(_prepare, partition, step, inputs, retries=RETRIES)
        computed = result_or_lost(prepared, what).compute()
        written = start(recorded, _finish, partition, prepared, computed, second, made, retries=RETRIES)
        counts, _, files = result_or_lost(written, what)
        note(files)
        return counts

    return unless_finished(file_of(made, partition), make)


def _prepare(partition: int, step: AnyStep, inputs: tuple[object, ...]) -> Deferred[object]:
    return step(*read_inputs(partition, inputs))


def _finish(partition: int, prepared: Deferred[object], computed: object, *outputs: Destination) -> Counts:
    return write_result(partition, prepared.finish(computed), *outputs)
