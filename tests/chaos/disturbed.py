"""Jobs that are disturbed at a chosen moment, each in a process of its own, which is forked from a clean one.

Without Ray: tasks run one after the other in the job's process. So the n-th change of the output is the same one in
each attempt, a kill ends driver and workers at once, and a job of a small archive takes a second or two. What real
workers and nodes do is tested elsewhere (tests/execution, tests/cluster).
"""

import errno
import functools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from inline import without_ray

from dupq import storage
from dupq.errors import FAULT, DupqError
from dupq.s3 import patience

LIMIT_SECONDS = 300  # an attempt's; on a quiet machine it takes some
KILLED = -signal.SIGKILL
_ASIDE = ("/progress.json", "/run.log")  # written beside the work, every few seconds; no run fails by them
FAULTS = ("killed before", "killed after", "disk full")

_STATES = ("AWS_", "DUPQ_")  # of the environment, which the clean process has as it was when that began

Job = Callable[[], object]  # that can be pickled, as can what happens at a moment

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(
    [f"dupq.pipelines.{name}" for name in ("ingest", "train", "dedup", "evaluate")] + ["dupq.encoders.saved"]
)


class Moment(NamedTuple):
    """The `number`-th change (a file put in its place, or removed) below `output`, and what happens there.

    With a full disk, the `number`-th file put in its place.
    """

    output: str
    number: int  # from 1
    fault: str  # of FAULTS, or "none"
    happens: Callable[[], object] | None = None  # before the change, beside the fault


class Ended(NamedTuple):
    """How an attempt ended."""

    code: int  # as Popen.returncode
    changes: int  # of the output, until then
    placed: int  # files of these that were put in their place
    said: str

    def moments(self, fault: str) -> range:
        """The moments that `fault` may happen at in a job that takes this course."""
        return range(1, (self.placed if fault == "disk full" else self.changes) + 1)


def attempt(job: Job, moment: Moment, folder: Path) -> Ended:
    """Run `job` in a process of its own, disturbed at `moment`; what it says is kept in `folder`."""
    return begin(job, moment, folder)()


def begin(job: Job, moment: Moment, folder: Path) -> Callable[[], Ended]:
    """As `attempt`, but it is the returned function that waits for the end."""
    said, counted = folder / "said.txt", folder / "changes.txt"
    counted.write_text("0 0")
    states = {name: value for name, value in os.environ.items() if name.startswith(_STATES)}
    process = _processes.Process(target=_run_and_exit, args=(job, moment, said, counted, states))
    process.start()

    def wait() -> Ended:
        process.join(LIMIT_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise AssertionError(f"an attempt did not end within {LIMIT_SECONDS} s")
        return Ended(process.exitcode, *map(int, counted.read_text().split()), said.read_text())

    return wait


def _run_and_exit(job: Job, moment: Moment, said: Path, counted: Path, states: dict[str, str]) -> None:
    code = FAULT
    try:
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ.update(states)
        patience._FIRST_WAIT, patience._LONGEST_WAIT = 0.005, 0.05
        with without_ray():
            _disturb(moment, counted)
            job()
        code = 0
    except DupqError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    except BaseException as error:
        print(f"fault: {error!r}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _disturb(moment: Moment, counted: Path) -> None:
    """Count the changes of the output, and let the fault happen at its moment. Removing needs no room on a disk."""
    changes = placed = 0

    def around(change: Callable[..., object], *paths: str, **more: object) -> object:
        nonlocal changes, placed
        is_removal = change.__name__.startswith("delete")
        if not str(paths[-1]).startswith(moment.output) or str(paths[-1]).endswith(_ASIDE):
            return change(*paths, **more)
        changes += 1
        placed += not is_removal
        counted.write_text(f"{changes} {placed}")
        is_due = (placed if moment.fault == "disk full" else changes) == moment.number
        is_due = is_due and not (is_removal and moment.fault == "disk full")
        if is_due and moment.happens is not None:
            moment.happens()
        if is_due and moment.fault == "killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        if is_due and moment.fault == "disk full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), paths[-1])
        result = change(*paths, **more)
        if is_due and moment.fault == "killed after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    os.replace = functools.partial(around, os.replace)
    os.link = functools.partial(around, os.link)
    storage.delete = functools.partial(around, storage.delete)
    storage.delete_folder = functools.partial(around, storage.delete_folder)


def differing(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    """The files that are missing, or that differ, or that should not be there."""
    return sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))


def tables_of(run: str) -> dict[str, bytes]:
    """The files that a run is for, by path; without those that hold times."""
    return contents(run, ("pairs", "clusters", "cluster_stats", "changes", "embeddings", "metrics.json", "review.tsv"))


def contents(folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """The content of some of its files, and of all files below some of its folders, by path."""
    return {path: storage.read_bytes(storage.join(folder, path)) for name in names for path in _paths(folder, name)}


def _paths(folder: str, name: str) -> Iterator[str]:
    place = storage.join(folder, name)
    if storage.kind(place) == "file":
        yield name
    elif storage.kind(place) == "folder":
        yield from (storage.join(name, file.relative) for file in storage.list_files(place))


def latest(runs: str) -> str:
    """The run that latest.json names."""
    return storage.join(runs, storage.read_json(storage.join(runs, "latest.json"))["run_id"])
