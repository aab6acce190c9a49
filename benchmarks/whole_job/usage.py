"""What this process and those below it (Ray, its workers) have used, from /proc (Linux)."""

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Since each process began."""

    own_cpu: float  # seconds of this process
    other_cpu: float  # seconds of those below it
    written: int  # bytes to disks, of all


class _Seen(NamedTuple):
    cpu: float
    written: int


_seen: dict[tuple[int, str], _Seen] = {}  # by process and when it started; those that have ended count on


def usage() -> Usage:
    """Of now. Of a process that has ended since the last call, what it had used until then: Ray waits for none."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and (fields := _stat(place)):
            found[int(place.name)] = fields
    own = os.getpid()
    parents = {pid: int(fields[1]) for pid, fields in found.items()}
    for pid, fields in found.items():
        if pid != own and _is_below(pid, own, parents):
            _seen[pid, fields[19]] = _Seen(sum(map(int, fields[11:13])) / _TICKS, _written(pid))
    others = sum(seen.cpu for seen in _seen.values())
    written = _written(own) + sum(seen.written for seen in _seen.values())
    return Usage(sum(os.times()[:2]), others, written)


def _stat(place: Path) -> list[str]:
    try:
        return (place / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _is_below(pid: int, own: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        if pid == own:
            return True
        pid = parents[pid]
    return False


def _written(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes:")), 0)


def disk(folder: Path) -> int:
    """Bytes of the files below a folder."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(above, name)).st_size
            except OSError:
                continue  # removed meanwhile
    return total
