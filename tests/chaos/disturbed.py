"""Jobs that are disturbed at a chosen moment, each in a process of its own, forked from one that has done each job.

Without Ray: tasks run one after the other in the job's process. So the n-th change of the output is the same one in
each attempt, a kill ends driver and workers at once, and a job of a small archive takes a second or two. What real
workers and nodes do is tested elsewhere (tests/job, tests/cluster).
"""

import contextlib
import errno
import functools
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal, NamedTuple
from unittest import mock

from inline import without_ray

from dupq import cli, local_files, patience, storage
from dupq.errors import FAULT, INTERRUPTED, TERMINATED, DupqError, StorageError
from dupq.job import lease, progress, supervisor

LIMIT_SECONDS = 300  # an attempt's; on a quiet machine it takes some
KILLED = -signal.SIGKILL
_ASIDE = ("/progress.json", "/run.log")  # written beside the work, every few seconds; no run fails by them
SIGNALS = {"SIGTERM": TERMINATED, "SIGINT": INTERRUPTED}  # sent to the job before a change, and its exit code
LINES = {
    fault: f"ended by {name}; what is finished is kept, run the same command again to go on"
    for fault, name in (("SIGTERM", "SIGTERM"), ("SIGINT", "Ctrl-C"))
}
FAULTS = ("killed before", "killed after", "disk full", "disk full while written", *SIGNALS)
LEASES = ("/leases/", "/_at_work/")  # parts of the paths of leases

_STATES = ("AWS_", "DUPQ_")  # of the environment, which the clean process has as it was when that began

Job = Callable[[], object]  # that can be pickled, as can what happens at a moment

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["warmed"])


class Moment(NamedTuple):
    """The `number`-th change (a file put in its place, or removed) below `output`, and what happens there.

    With a full disk, the `number`-th file put in its place, or the `number`-th that is written.
    """

    output: str
    number: int  # from 1
    fault: str  # of FAULTS, or "none"
    happens: Callable[[], object] | None = None  # before the change, beside the fault


Kind = Literal["placed", "removed", "written", "struck"]


class Event(NamedTuple):
    """A file is put in its place, or removed, or about to be written, or what was due happens to it."""

    kind: Kind
    path: str


class Ended(NamedTuple):
    """How an attempt ended."""

    code: int  # as Popen.returncode
    course: tuple[Event, ...]  # what became of the output, until then
    said: str

    @property
    def changes(self) -> list[str]:
        """The paths that were changed, one after the other."""
        return [path for kind, path in self.course if kind in ("placed", "removed")]

    @property
    def struck(self) -> str | None:
        """The path that the attempt was disturbed at; None if it was not."""
        return next((path for kind, path in self.course if kind == "struck"), None)

    def moments(self, fault: str) -> range:
        """The moments that `fault` may happen at in a job that takes this course."""
        kinds = [kind for kind, _ in self.course]
        count = kinds.count(_KINDS[fault]) if fault in _KINDS else len(self.changes)
        return range(1, count + 1)

    def check_disturbed(self, fault: str) -> None:
        """The fault happened, and the attempt ended by it.

        But a lease runs out by itself if it cannot be given up, which is when it is written again.
        """
        assert self.struck is not None, (fault, self.said)
        if fault in SIGNALS:
            self._check_signalled(fault)
            return
        is_again = fault in _KINDS and self.course.count(Event(_KINDS[fault], self.struck)) > 1
        is_harmless = is_again and any(part in self.struck for part in LEASES)
        due = {StorageError.EXIT_CODE} if fault in _KINDS else {KILLED}
        assert self.code in (due | {0} if is_harmless else due), (fault, self.struck, self.said)

    def _check_signalled(self, fault: str) -> None:
        """It ended with one line, and left nothing that looks at work."""
        ended = (self.code, self.said.splitlines()[-1])
        assert ended == (SIGNALS[fault], LINES[fault]), (fault, self.struck, self.said)
        assert not re.search(r"\*\*\*|Traceback|^(error|fault):", self.said, re.MULTILINE), self.said
        for lease_file in {path for path in self.changes if any(part in path for part in LEASES)}:
            assert not storage.exists(lease_file) or storage.read_json(lease_file)["is_over"], (fault, self.struck)
        for folder in {path.partition("/work/")[0] for path in self.changes}:
            told = progress.read_progress(folder)
            assert told is None or told["state"] != "running", (fault, self.struck)


_KINDS: dict[str, Kind] = {"disk full": "placed", "disk full while written": "written"}  # else: any change


def attempt(job: Job, moment: Moment, folder: Path) -> Ended:
    """Run `job` in a process of its own, disturbed at `moment`; what it says is kept in `folder`."""
    return begin(job, moment, folder)()


def begin(job: Job, moment: Moment, folder: Path) -> Callable[[], Ended]:
    """As `attempt`, but it is the returned function that waits for the end."""
    said, counted = folder / "said.txt", folder / "course.txt"
    counted.write_text("")
    states = {name: value for name, value in os.environ.items() if name.startswith(_STATES)}
    process = _processes.Process(target=_run_and_exit, args=(job, moment, said, counted, states))
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):  # by which the first finds `warmed`
        process.start()

    def wait() -> Ended:
        process.join(LIMIT_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise AssertionError(f"an attempt did not end within {LIMIT_SECONDS} s")
        lines = [line.partition("\t") for line in counted.read_text().splitlines()]
        ended = Ended(process.exitcode, tuple(Event(kind, path) for kind, _, path in lines), said.read_text())
        if 0 < ended.code < FAULT:
            _check_one_line(ended.said)
        return ended

    return wait


def _check_one_line(said: str) -> None:
    """What is said of an error is one line, and the last."""
    lines = said.splitlines()
    assert lines, "nothing was said of an error"
    assert [line for line in lines if line.startswith("error:")] == lines[-1:], said


def _run_and_exit(job: Job, moment: Moment, said: Path, counted: Path, states: dict[str, str]) -> None:
    code = FAULT
    try:
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ.update(states)
        patience._FIRST_WAIT, patience._LONGEST_WAIT = 0.005, 0.05
        # what comes by the clock would make the n-th change another one each time
        lease.BEAT_SECONDS = progress.SECONDS_BETWEEN = 3600
        lease.LIFE = timedelta(hours=1)
        supervisor.on_end(lambda line, code: print(line, file=sys.stderr, flush=True), cli._leave)
        with supervisor.handle_signals(), without_ray():
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
    """Write down what becomes of the output, and let the fault happen at its moment."""
    wanted = _KINDS.get(moment.fault)
    seen = 0
    lock = threading.RLock()

    def is_due(kind: Kind, path: str) -> bool:
        """Whether this is the moment; what is due beside the fault happens."""
        nonlocal seen
        is_counted = kind == wanted if wanted else kind != "written"
        with lock, counted.open("a") as lines:
            lines.write(f"{kind}\t{path}\n")
            seen += is_counted
            is_now = is_counted and seen == moment.number
            if is_now:
                lines.write(f"struck\t{path}\n")
        if is_now and moment.happens is not None:
            moment.happens()
        return is_now

    def around(kind: Kind, change: Callable[..., object], *paths: str, **more: object) -> object:
        path = str(paths[-1])
        if not _counts(path, moment):
            return change(*paths, **more)
        is_now = is_due(kind, path)
        if is_now and moment.fault == "killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        if is_now and moment.fault in SIGNALS:
            os.kill(os.getpid(), signal.Signals[moment.fault])
            if threading.current_thread() is not threading.main_thread():
                time.sleep(0.05)  # so that the signal comes before the change in every thread
        if is_now and moment.fault == "disk full":
            raise _full(path)
        result = change(*paths, **more)
        if is_now and moment.fault == "killed after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    @contextlib.contextmanager
    def local_temporary(path: str) -> Iterator[str]:
        with temporary_for(path) as temporary:
            if _counts(path, moment) and is_due("written", path) and moment.fault == "disk full while written":
                os.symlink("/dev/full", temporary)  # whatever is written there, the kernel has no space for it
            yield temporary

    def make_durable(path: str) -> None:
        """Without waiting for the disk: what a killed process has written is there."""
        if os.path.islink(path):  # nothing was written yet
            raise _full(path)

    temporary_for, local_files.temporary = local_files.temporary, local_temporary
    local_files.make_durable = make_durable
    os.replace = functools.partial(around, "placed", os.replace)
    os.link = functools.partial(around, "placed", os.link)
    storage.delete = functools.partial(around, "removed", storage.delete)
    storage.delete_folder = functools.partial(around, "removed", storage.delete_folder)


def _counts(path: str, moment: Moment) -> bool:
    return path.startswith(moment.output) and not path.endswith(_ASIDE)


def _full(path: str) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def differing(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    """The files that are missing, or that differ, or that should not be there."""
    return sorted(path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path))


def tables_of(run: str) -> dict[str, bytes]:
    """The files that a run is for, by path; without those that hold times."""
    folders = ("pairs", "clusters", "cluster_stats", "worklist", "changes", "embeddings")
    return contents(run, (*folders, "metrics.json", "review.tsv", "worklist.tsv"))


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


def searched_again(run: str) -> int:
    """How many questions a run searched that took the others' neighbours from an earlier run; 0: it took none."""
    stages = storage.read_json(storage.join(run, "manifest.json"))["stages"]
    return next(stage["counts"] for stage in stages if stage["name"] == "neighbours").get("questions searched", 0)
