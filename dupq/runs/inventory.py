"""The runs below an output folder: their state, which of them may be removed, and how an operator sees them."""

import itertools
import logging
import operator
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, NotRequired

import pyarrow.fs as pafs
from typing_extensions import TypedDict

from dupq import storage
from dupq.encoders.saved import encoder_at
from dupq.errors import DupqError, StorageError
from dupq.job.progress import Progress, is_alive, read_progress
from dupq.job.records import RunFiles, Success, latest_run
from dupq.runs.reader import built_on
from dupq.storage import read_as, read_or_none

YOUNG = timedelta(days=1)
_order = operator.attrgetter("touched", "run_id")
_RUN_ID = re.compile(r"[0-9a-f]{16}")
_Files = dict[str, pafs.FileInfo]  # by path in a folder
_SIGNS = ("stages/", "manifest.json", "progress.json", "_SUCCESS")  # a folder named as a run with one of these is a run
DAMAGED = "its _SUCCESS, or a file that this names, is damaged or gone; run its job again, or remove its folder"
_log = logging.getLogger(__name__)


class State(StrEnum):
    """The progress of a run."""

    RUNNING = "running"
    UNFINISHED = "unfinished"  # cut off; the same job finishes it
    GATE_MISSED = "gate missed"
    FINISHED = "finished"
    LATEST = "latest"  # finished, and latest.json points at it
    DAMAGED = "damaged"  # `_SUCCESS`, or a file that it names, is damaged or gone; its job repairs it


class KnownRun(NamedTuple):
    """A run below an output folder."""

    run_id: str
    state: State
    touched: datetime  # when it was finished; else when it was last written to
    size: int  # bytes
    previous: str | None  # the id of the run that it builds on

    @property
    def is_whole(self) -> bool:
        """Whether readers may use it."""
        return self.state in (State.FINISHED, State.LATEST)


class Keep(NamedTuple):
    """The number of finished runs to keep."""

    newest: int  # at least 1
    monthly: int  # the newest run of each of so many months that have one, counted back


def removable(runs: Sequence[KnownRun], keep: Keep, now: datetime) -> list[KnownRun]:
    """Return the runs that are not needed, oldest first.

    Kept are the latest run; the newest finished ones and the newest of each month (UTC), as `keep` says; runs at work;
    and damaged ones, which do not count as finished. Unfinished runs and those that missed a gate are kept for a day,
    the latter also until a later run succeeds. A run on which the latest run, or a kept unfinished one, builds is kept
    too.
    """
    whole = sorted((run for run in runs if run.is_whole), key=_order, reverse=True)
    months = itertools.groupby(whole, key=lambda run: (run.touched.year, run.touched.month))
    kept = {run.run_id for run in whole[: keep.newest]}
    kept |= {next(of_month).run_id for _, of_month in itertools.islice(months, keep.monthly)}
    heads = [run for run in runs if run.state is State.LATEST] or whole[:1]  # if latest.json is lost
    last = max((run.touched for run in heads), default=None)
    heads += [run for run in runs if not run.is_whole and _may_go_on(run, last, now)]
    kept |= {run.run_id for run in heads} | {run.previous for run in heads if run.previous}
    return sorted((run for run in runs if run.run_id not in kept), key=_order)


def _may_go_on(run: KnownRun, last: datetime | None, now: datetime) -> bool:
    """Return whether a run that is not whole may still be wanted; `last` is when the latest run finished."""
    if run.state in (State.RUNNING, State.DAMAGED) or now - run.touched < YOUNG:
        return True
    return run.state is State.GATE_MISSED and (last is None or run.touched > last)


class _EncoderFile(TypedDict):
    """The entries of encoder.json that are read here."""

    run_id: NotRequired[str]


def known_runs(output: str, now: datetime) -> list[KnownRun]:
    """Return the runs below `output`, by the time of the last change. Raises DupqError if `output` is a file."""
    if storage.kind(output) == "file":
        raise DupqError(f"{output}: a file; a folder of runs expected")
    by_run: dict[str, _Files] = defaultdict(dict)
    for relative, info in _files(output):
        run_id, _, path = relative.partition("/")
        if path:
            by_run[run_id][path] = info
    latest = latest_run(output)
    known = (_known(storage.join(output, run_id), files, latest, now) for run_id, files in by_run.items())
    return sorted((run for run in known if run is not None), key=_order)


def known_run(output: str, run_id: str, now: datetime) -> KnownRun | None:
    """Return one of the runs below `output`; None if there is no such run."""
    if not _RUN_ID.fullmatch(run_id):
        return None
    uri = storage.join(output, run_id)
    return _known(uri, dict(_files(uri)), latest_run(output), now)


def _known(uri: str, files: _Files, latest: str | None, now: datetime) -> KnownRun | None:
    run_id = storage.name(uri)
    if not _RUN_ID.fullmatch(run_id) or not any(path.startswith(_SIGNS) for path in files):
        return None
    progress = read_progress(uri) if "progress.json" in files else None
    state = State.UNFINISHED
    if progress is not None and progress["state"] == "gate missed":
        state = State.GATE_MISSED
    elif progress is not None and is_alive(progress, now):
        state = State.RUNNING
    touched = max(info.mtime for info in files.values())
    success = read_or_none(storage.join(uri, "_SUCCESS"), Success) if "_SUCCESS" in files else None
    written = success["outputs"] if success else {}  # only sizes are compared
    if success and all(path in files and files[path].size == output["size"] for path, output in written.items()):
        state = State.LATEST if uri == latest else State.FINISHED
        touched = datetime.fromisoformat(success["finished"])
    elif "_SUCCESS" in files and state is not State.RUNNING:
        state = State.DAMAGED
    previous = built_on(uri) if "manifest.json" in files else None  # which is written when all stages are done
    if previous is None and progress is not None:
        previous = progress["inputs"].get("previous")
    size = sum(info.size for info in files.values())
    return KnownRun(run_id, state, touched, size, storage.name(str(previous)) if previous else None)


def _files(folder: str) -> list[tuple[str, pafs.FileInfo]]:
    """Return all files at any depth below a folder, including hidden ones, by their paths in it."""
    files, path = storage.filesystem(folder)
    try:
        infos = files.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    except OSError as error:
        raise StorageError(f"{folder}: cannot be listed ({' '.join(str(error).split())})") from error
    return [(info.path[len(path) :].lstrip("/"), info) for info in infos if info.type == pafs.FileType.File]


def clear(folder: str, kept: Collection[str], really: bool = True) -> int:
    """Remove all files below a folder except the files and folders `kept` (URIs); return the freed bytes.

    Without `really`, only count them.
    """
    above = {"/".join(names[:depth]) for names in (uri.split("/") for uri in kept) for depth in range(1, len(names))}
    sizes: dict[str, int] = defaultdict(int)  # by file, or folder that goes as a whole
    for path, info in _files(folder):
        names = path.split("/")
        uris = (storage.join(folder, *names[:depth]) for depth in range(1, len(names) + 1))
        sizes[next((uri for uri in uris if uri not in above), storage.join(folder, path))] += info.size
    gone = sizes.keys() - set(kept)
    for uri in sorted(gone) if really else ():
        storage.delete_folder(uri)
        if storage.kind(uri) == "file":
            storage.delete(uri)
    return sum(sizes[uri] for uri in gone)


def encoder_leftovers(encoder: str, now: datetime) -> list[KnownRun]:
    """Return the trainings into this folder that did not make its encoder and are not at work.

    Raises DupqError if the folder has neither an encoder nor a training, or if the encoder's description is damaged, so
    that it does not say which training made it.
    """
    if storage.kind(encoder) != "folder":
        raise DupqError(f"{encoder}: no such folder; give the --output of dupq train")
    runs = known_runs(storage.join(encoder, "work"), now)
    description = storage.join(encoder_at(encoder), "encoder.json")
    if not runs and not storage.exists(description):
        raise DupqError(f"{encoder}: neither an encoder nor a training is here; give the --output of dupq train")
    remedy = "train or copy the encoder again; nothing was removed"
    maker = read_as(description, _EncoderFile, remedy).get("run_id") if storage.exists(description) else None
    return [
        run for run in runs if run.run_id != maker and run.state is not State.RUNNING and now - run.touched >= YOUNG
    ]


def line_of(run: KnownRun, now: datetime) -> str:
    """Return a run in one line: id, state, age, size."""
    return f"{run.run_id}  {run.state:11}  {age_of(now - run.touched):>8}  {size_of(run.size):>9}"


def age_of(time: timedelta) -> str:
    """Return a duration in its largest unit: 40 s, 3 min, 5 h, 12 days."""
    seconds = max(0, round(time.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3_600:
        return f"{seconds // 60} min"
    return f"{seconds // 3_600} h" if seconds < 2 * 86_400 else f"{seconds // 86_400} days"


def size_of(count: float) -> str:
    """Return bytes in a readable unit: 512 B, 1.5 kB, 2.0 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} TB"


def status_of(uri: str, now: datetime) -> tuple[str, KnownRun, Progress | None]:
    """Return the URI, the state and the progress of the run at `uri`, or of the newest run below it.

    Raises DupqError if there is none.
    """
    run, progress = uri, read_progress(uri)
    if progress is None and (runs := known_runs(uri, now)):
        run = storage.join(uri, runs[-1].run_id)
        progress = read_progress(run)
    known = known_run(storage.parent(run), storage.name(run), now)
    if known is None:
        raise DupqError(f"{uri}: no run is here, and no folder of runs")
    return run, known, progress


def status(uri: str, now: datetime) -> str:
    """Return in lines what `status_of` returns."""
    run, known, progress = status_of(uri, now)
    lines = [f"run        {run}", f"state      {_state(known, progress, now)}"]
    if progress is not None and not known.is_whole and known.state is not State.DAMAGED:
        lines.append(f"stage      {progress['stage']}, for {age_of(now - datetime.fromisoformat(progress['since']))}")
        if progress["total"]:
            lines.append(f"step       {progress['step']}: {progress['done']:,} of {progress['total']:,}")
    return "\n".join(lines)


def _state(known: KnownRun, progress: Progress | None, now: datetime) -> str:
    if known.state is State.DAMAGED:
        return f"{known.state}: {DAMAGED}"
    if progress is None:
        return str(known.state)
    age = age_of(now - datetime.fromisoformat(progress["updated"]))
    if known.is_whole or is_alive(progress, now):
        return f"{known.state}, seen {age} ago"
    return f"{'cut off' if progress['state'] == 'running' else progress['state']} {age} ago"


def tidy(run: str, really: bool = True) -> int:
    """Remove the files of a finished run's work that nothing reads later; return the bytes. Without `really`, only
    count.

    A later run with --previous reads the texts, the lists and a reranker's vectors; `Run.at` reads the calibration and
    the rarities; look-ups with datasketch read the signatures.
    """
    files = RunFiles(run)
    kept = [files.texts, files.contents, files.nearest, files.calibration, files.rarities, files.signatures]
    kept += [files.scoped, files.read_contents, files.read_vectors, files.reread]
    return clear(files.path("work"), kept, really)


def tidy_at_end(run: str, really: bool = True) -> int:
    """Do the same as `tidy`, but only log a failure: the next attempt or `dupq prune` tidies again."""
    try:
        return tidy(run, really)
    except DupqError as error:
        _log.warning(f"{run}: what is left of the work could not be listed or removed ({error})")
        return 0


def prune(output: str, encoders: Sequence[str], keep: Keep, now: datetime, is_dry: bool) -> Iterator[str]:
    """Remove runs below `output` that `keep` does not retain, and leftovers; yield a line for each.

    A damaged run is left alone, with a line. Raises DupqError, before anything is removed, if there is no run or no
    encoder.
    """
    runs = known_runs(output, now)
    if not runs:
        raise DupqError(f"{output}: no runs here; give the --output of dupq dedup")
    leftovers = {encoder: encoder_leftovers(encoder, now) for encoder in encoders}
    verb, freed = ("would remove" if is_dry else "removed"), 0
    going = removable(runs, keep, now)
    for run in going:
        if is_dry or _remove(output, run, now):
            freed += run.size
            yield f"{verb}  {line_of(run, now)}"
    for run in runs:
        if run.state is State.DAMAGED:
            yield f"left alone  {line_of(run, now)}  {DAMAGED}"
        if run.is_whole and run not in going and (size := _tidy(output, run, now, is_dry)):
            freed += size
            yield f"{verb}  {run.run_id}  {size_of(size)} of its work"
    for encoder, trainings in leftovers.items():
        for training in trainings:
            if is_dry or _remove(storage.join(encoder, "work"), training, now):
                freed += training.size
                yield f"{verb}  {line_of(training, now)}  a training for {encoder}"
    yield f"{verb}  {size_of(freed)} in all; {len(runs) - len(going)} of {len(runs)} runs are kept"


def _remove(folder: str, run: KnownRun, now: datetime) -> bool:
    """Remove a run, its _SUCCESS first, unless it has changed since it was listed; return whether it was removed."""
    if known_run(folder, run.run_id, now) != run:
        return False
    uri = storage.join(folder, run.run_id)
    storage.delete(storage.join(uri, "_SUCCESS"))
    storage.delete_folder(uri)
    return True


def _tidy(output: str, run: KnownRun, now: datetime, is_dry: bool) -> int:
    """Tidy a finished run's work, unless its settings keep it or the run has changed since; return the bytes."""
    uri = storage.join(output, run.run_id)
    config = read_or_none(storage.join(uri, "config.json"), dict[str, dict[str, Any]]) or {}
    if config.get("run", {}).get("keep_work") or known_run(output, run.run_id, now) != run:
        return 0
    return tidy(uri, really=not is_dry)
