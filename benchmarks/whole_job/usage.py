"""What this process and those below it (Ray, its workers) have used, from /proc (Linux)."""

import os
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Since each process began, with those that have ended and were waited for."""

    own_cpu: float  # seconds of this process
    other_cpu: float  # seconds of those below it
    written: int  # bytes to disks, of all


def usage() -> Usage:
    """Of now. A process that ends meanwhile counts with its parent."""
    cpu, parents = {}, {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and (fields := _stat(place)):
            parents[int(place.name)] = int(fields[1])
            cpu[int(place.name)] = sum(map(int, fields[11:15])) / _TICKS
    own = os.getpid()
    below = {pid for pid in parents if pid != own and _is_below(pid, own, parents)}
    others = sum(cpu[pid] for pid in below)
    return Usage(sum(os.times()[:4]), others, sum(map(_written, [own, *below])))


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
