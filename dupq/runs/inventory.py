"""The runs below an output folder: what is known of each, which may be removed, and how an operator sees them."""

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, NotRequired

import pyarrow.fs as pafs
from typing_extensions import TypedDict

from dupq import storage
from dupq.encoders.saved import encoder_at
from dupq.errors import DupqError, StorageError
from dupq.runs.progress import Progress, is_alive, read_progress, time_of
from dupq.runs.reader import latest_run
from dupq.runs.records import TEACHERS, Config, Manifest, RunFiles, Success, TrainingFiles
from dupq.storage import read_as, read_or_none

YOUNG = timedelta(days=1)


class State(StrEnum):
    """How far a run has come."""

    RUNNING = "running"
    UNFINISHED = "unfinished"  # cut off; the same job finishes it
    GATE_MISSED = "gate missed"
    FINISHED = "finished"
    LATEST = "latest"  # finished, and latest.json points at it
    DAMAGED = "damaged"  # it was finished, but `_SUCCESS` or what that names is damaged or gone; its job repairs it


class KnownRun(NamedTuple):
    """What is known of a run."""

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
    """How many finished runs are kept."""

    newest: int  # at least 1
    monthly: int  # months with finished runs, counted back, of each of which the newest run is kept


def removable(runs: Sequence[KnownRun], keep: Keep, now: datetime) -> list[KnownRun]:
    """The runs that nothing needs, oldest first.

    Kept are the latest run; the newest finished ones and the newest of each month, as `keep` says; runs at work;
    damaged ones, which count as no finished ones; unfinished ones and those that missed a gate for a day, and these
    while no later run has succeeded; and what the latest run and those that are not finished and kept build on. Months
    are those of UTC.
    """
    whole = sorted((run for run in runs if run.is_whole), key=_order, reverse=True)
    kept = {run.run_id for run in whole[: keep.newest]} | _newest_of_months(whole, keep.monthly)
    heads = [run for run in runs if run.state is State.LATEST] or whole[:1]  # where latest.json is lost
    last = max((run.touched for run in heads), default=None)
    heads += [run for run in runs if not run.is_whole and _may_go_on(run, last, now)]
    kept |= {run.run_id for run in heads} | {run.previous for run in heads if run.previous}
    return sorted((run for run in runs if run.run_id not in kept), key=_order)


def _order(run: KnownRun) -> tuple[datetime, str]:
    return run.touched, run.run_id


def _newest_of_months(newest_first: Sequence[KnownRun], months: int) -> set[str]:
    by_month: dict[tuple[int, int], str] = {}
    for run in newest_first:
        by_month.setdefault((run.touched.year, run.touched.month), run.run_id)
    return set(list(by_month.values())[:months])


def _may_go_on(run: KnownRun, last: datetime | None, now: datetime) -> bool:
    """Whether somebody may still want a run that is not whole; `last`: when the latest run was finished."""
    if run.state in (State.RUNNING, State.DAMAGED) or now - run.touched < YOUNG:
        return True
    return run.state is State.GATE_MISSED and (last is None or run.touched > last)


_RUN_ID = re.compile(r"[0-9a-f]{16}")
_Files = dict[str, pafs.FileInfo]  # by their paths in a folder
_SIGNS = ("stages/", "manifest.json", "progress.json", "_SUCCESS")  # a folder of such a name with one of these is a run


class _Made(TypedDict):
    """What is read of encoder.json."""

    run_id: NotRequired[str]


class _TaughtAs(TypedDict):
    """What is read of a training's taught_as.json."""

    teachers: list[str]  # fingerprints
    device: str


def known_runs(output: str, now: datetime) -> list[KnownRun]:
    """The runs below `output`, by when they were touched last. Empty if there is none; DupqError if it is a file."""
    if storage.kind(output) == "file":
        raise DupqError(f"{output}: a file; a folder of runs expected")
    by_run: dict[str, _Files] = defaultdict(dict)
    for relative, info in _files(output):
        run_id, _, path = relative.partition("/")
        if path:
            by_run[run_id][path] = info
    latest = latest_run(output)
    found = [_known(storage.join(output, run_id), files, latest, now) for run_id, files in by_run.items()]
    return sorted((run for run in found if run is not None), key=_order)


def known_run(output: str, run_id: str, now: datetime) -> KnownRun | None:
    """What is known of one of the runs below `output`; None if there is no such run."""
    uri = storage.join(output, run_id)
    return _known(uri, dict(_files(uri)), latest_run(output), now)


def _known(uri: str, files: _Files, latest: str | None, now: datetime) -> KnownRun | None:
    run_id = storage.name(uri)
    if not _RUN_ID.fullmatch(run_id) or not any(path.startswith(_SIGNS) for path in files):
        return None
    told = read_progress(uri) if "progress.json" in files else None
    state = State.UNFINISHED
    if told is not None and told["state"] == "gate missed":
        state = State.GATE_MISSED
    elif told is not None and is_alive(told, now):
        state = State.RUNNING
    touched = max(info.mtime for info in files.values())
    success = read_or_none(storage.join(uri, "_SUCCESS"), Success) if "_SUCCESS" in files else None
    written = success["outputs"] if success else {}  # contents are not looked at
    if success and all(path in files and files[path].size == output["size"] for path, output in written.items()):
        state = State.LATEST if uri == latest else State.FINISHED
        touched = datetime.fromisoformat(success["finished"])
    elif "_SUCCESS" in files and state is not State.RUNNING:
        state = State.DAMAGED
    # which is there when all stages are done
    manifest = read_or_none(storage.join(uri, "manifest.json"), Manifest) if "manifest.json" in files else None
    previous = manifest["inputs"].get("previous") if manifest else told["inputs"].get("previous") if told else None
    size = sum(info.size for info in files.values())
    return KnownRun(run_id, state, touched, size, storage.name(str(previous)) if previous else None)


def _files(folder: str) -> list[tuple[str, pafs.FileInfo]]:
    """All files at any depth below a folder, hidden ones too, by their paths in it."""
    return [(path, info) for path, info in _entries(folder, recursive=True) if info.type == pafs.FileType.File]


def _entries(folder: str, recursive: bool) -> list[tuple[str, pafs.FileInfo]]:
    files, path = storage.filesystem(folder)
    try:
        found = files.get_file_info(pafs.FileSelector(path, recursive=recursive, allow_not_found=True))
    except OSError as error:
        raise StorageError(f"{folder}: cannot be listed ({error})") from error
    return [(info.path[len(path) :].lstrip("/"), info) for info in found]


def remove(run: str) -> None:
    """Remove a run, first what makes it look whole."""
    storage.delete(storage.join(run, "_SUCCESS"))
    storage.delete_folder(run)


def clear(folder: str, kept: Collection[str], really: bool = True) -> int:
    """Remove all below a folder but the files and folders `kept` (URIs); returns their bytes.

    Without `really`, they are counted only.
    """
    size = 0
    for name, info in _entries(folder, recursive=False):
        uri = storage.join(folder, name)
        if uri in kept:
            continue
        if info.type == pafs.FileType.File:
            size += info.size
            if really:
                storage.delete(uri)
        elif any(other.startswith(f"{uri}/") for other in kept):
            size += clear(uri, kept, really)
        else:
            size += sum(found.size for _, found in _files(uri))
            if really:
                storage.delete_folder(uri)
    return size


def encoder_leftovers(encoder: str, now: datetime) -> list[KnownRun]:
    """The work of trainings into this folder that did not make the encoder there, and that nobody is at now.

    Raises DupqError where neither an encoder is nor a training's work, and for an encoder that does not tell which
    training made it, because its description is damaged.
    """
    if storage.kind(encoder) != "folder":
        raise DupqError(f"{encoder}: no such folder; give the --output of dupq train")
    runs = known_runs(storage.join(encoder, "work"), now)
    place = storage.join(encoder_at(encoder), "encoder.json")
    if not runs and not storage.exists(place):
        raise DupqError(f"{encoder}: neither an encoder nor a training is here; give the --output of dupq train")
    remedy = "train or copy the encoder anew; nothing is removed"
    made_it = read_as(place, _Made, remedy).get("run_id") if storage.exists(place) else None
    return [
        run for run in runs if run.run_id != made_it and run.state is not State.RUNNING and now - run.touched >= YOUNG
    ]


def teacher_leftovers(encoder: str, going: Sequence[KnownRun], now: datetime) -> dict[str, int]:
    """What teachers encoded into this folder for no training but those that are `going`: bytes by folder.

    Not what was written within a day. Trainings have copies of their own.
    """
    work = storage.join(encoder, "work")
    gone = {run.run_id for run in going}
    read = set()
    for run in known_runs(work, now):
        files = TrainingFiles(storage.join(work, run.run_id))
        told = read_or_none(files.taught_as, _TaughtAs)
        if told is not None and run.run_id not in gone:
            read |= {files.kept_by(teacher, told["device"]) for teacher in told["teachers"]}
    there: dict[str, list[pafs.FileInfo]] = defaultdict(list)
    for path, info in _files(storage.join(work, TEACHERS)):
        there[storage.join(work, TEACHERS, path.partition("/")[0])].append(info)
    return {
        uri: sum(info.size for info in infos)
        for uri, infos in there.items()
        if uri not in read and now - max(info.mtime for info in infos) >= YOUNG
    }


DAMAGED = "its _SUCCESS, or a file that this names, is damaged or gone; run its job again, or remove its folder"


def lines(output: str) -> list[str]:
    """Return a line for each run below `output`, oldest first. Raises DupqError if there is none."""
    now = datetime.now(UTC)
    runs = known_runs(output, now)
    if not runs:
        raise DupqError(f"{output}: no runs here; give the --output of dupq dedup")
    return [line_of(run, now) for run in runs]


def line_of(run: KnownRun, now: datetime) -> str:
    """A run in one line: id, state, age, size."""
    return f"{run.run_id}  {run.state:11}  {age_of(now - run.touched):>8}  {size_of(run.size):>9}"


def age_of(time: timedelta) -> str:
    """A time in its largest unit: 40 s, 3 min, 5 h, 12 days."""
    seconds = max(0, round(time.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3_600:
        return f"{seconds // 60} min"
    return f"{seconds // 3_600} h" if seconds < 2 * 86_400 else f"{seconds // 86_400} days"


def size_of(count: float) -> str:
    """Bytes: 512 B, 1.5 kB, 2.0 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} TB"


def status(uri: str, now: datetime) -> str:
    """How far the run at `uri` is, or the newest of the runs there. Raises DupqError if there is none."""
    place = uri
    told = read_progress(place)
    if told is None and (runs := known_runs(uri, now)):
        place = storage.join(uri, runs[-1].run_id)
        told = read_progress(place)
    known = known_run(storage.parent(place), storage.name(place), now)
    if known is None:
        raise DupqError(f"{uri}: no run is here, and no folder of runs")
    lines = [f"run        {place}", f"state      {_state(known, told, now)}"]
    if told is not None and not known.is_whole and known.state is not State.DAMAGED:
        lines.append(f"stage      {told['stage']}, for {age_of(now - datetime.fromisoformat(told['since']))}")
        if told["total"]:
            lines.append(f"step       {told['step']}: {told['done']:,} of {told['total']:,}")
    return "\n".join(lines)


def _state(known: KnownRun, told: Progress | None, now: datetime) -> str:
    if known.state is State.DAMAGED:
        return f"{known.state}: {DAMAGED}"
    if told is None or known.is_whole or is_alive(told, now):
        return f"{known.state}" if told is None else f"{known.state}, seen {age_of(now - time_of(told))} ago"
    state = "cut off" if told["state"] == "running" else told["state"]
    return f"{state} {age_of(now - time_of(told))} ago"


_log = logging.getLogger(__name__)


def tidy(run: str, really: bool = True) -> int:
    """Remove what nothing needs of the work of a finished run; returns its bytes. Without `really`, count only.

    A later run with --previous reads the texts, the lists, a teacher's vectors, and what these were made by; `Run.at`
    the calibration and the rarities; look-ups with datasketch the signatures.
    """
    files = RunFiles(run)
    texts = (files.texts, files.contents, files.texts_made_as, files.encoded_as)
    lists = (files.request, files.nearest)
    others = (files.calibration, files.rarities, files.signatures)
    return clear(files.path("work"), (*texts, *lists, *files.teacher, *others), really)


def tidy_at_end(run: str, really: bool = True) -> int:
    """As `tidy`; a failure is only told: the run is whole, and the next attempt or `dupq prune` tidies again."""
    try:
        return tidy(run, really)
    except DupqError as error:
        _log.warning(f"{run}: what is left of the work could not be listed or removed ({error})")
        return 0


def prune(output: str, encoders: Sequence[str], keep: Keep, now: datetime, is_dry: bool) -> Iterator[str]:
    """Remove runs below `output` that `keep` lets go, and what is left over; a line for each.

    A line too for each damaged run, which is left alone. Raises DupqError, before anything is removed, if there is no
    run or no encoder.
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
        for folder, size in teacher_leftovers(encoder, trainings, now).items():
            if not is_dry:
                storage.delete_folder(folder)
            freed += size
            yield f"{verb}  {size_of(size)} that a teacher encoded for {encoder}"
    yield f"{verb}  {size_of(freed)} in all; {len(runs) - len(going)} of {len(runs)} runs are kept"


def _remove(folder: str, run: KnownRun, now: datetime) -> bool:
    """Remove a run, unless something happened to it since it was looked at."""
    if not _is_as_it_was(folder, run, now):
        return False
    remove(storage.join(folder, run.run_id))
    return True


def _tidy(output: str, run: KnownRun, now: datetime, is_dry: bool) -> int:
    """Remove the work of a finished run; returns the bytes.

    Not of one that was made to keep it, and not if something happened to it since it was looked at: it may be at work.
    """
    place = storage.join(output, run.run_id)
    config = read_or_none(storage.join(place, "config.json"), Config) or {}
    if config.get("run", {}).get("keep_work") or not _is_as_it_was(output, run, now):
        return 0
    return tidy(place, really=not is_dry)


def _is_as_it_was(folder: str, run: KnownRun, now: datetime) -> bool:
    return known_run(folder, run.run_id, now) == run
