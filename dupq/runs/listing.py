"""Runs as an operator sees them: a line each, or one of them as far as it has come."""

from datetime import UTC, datetime, timedelta

from dupq import storage
from dupq.errors import DupqError
from dupq.runs import inventory
from dupq.runs.progress import Progress, is_alive, read_progress, time_of
from dupq.runs.retention import KnownRun, State

DAMAGED = "its _SUCCESS, or a file that this names, is damaged or gone; run its job again, or remove its folder"


def lines(output: str) -> list[str]:
    """Return a line for each run below `output`, oldest first. Raises DupqError if there is none."""
    now = datetime.now(UTC)
    runs = inventory.known_runs(output, now)
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
    if told is None and (runs := inventory.known_runs(uri, now)):
        place = storage.join(uri, runs[-1].run_id)
        told = read_progress(place)
    known = inventory.known_run(storage.parent(place), storage.name(place), now)
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
