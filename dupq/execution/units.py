"""Units of work: a rerun skips what an earlier attempt finished, if its files are still the ones that were written.

A unit leaves a mark beside its main output: what it counted, and each file that it wrote with size and checksum. The
mark is written last. Without it, or if a file was deleted, cut or replaced since, the unit is done again; the same
inputs give the same bytes. Names of marks begin with an underscore, which readers of tables pass over.
"""

from collections.abc import Callable

from typing_extensions import TypedDict

from dupq import storage
from dupq.json_files import read_whole
from dupq.recording import Written, forget, note, recording

Counts = dict[str, int]


class _Mark(TypedDict):
    """What a finished unit leaves."""

    counts: Counts
    files: dict[str, tuple[int, str, int | None]]  # by URI: `Written`


def finished(output: str) -> tuple[Counts, dict[str, Written]] | None:
    """What an earlier attempt at this run counted in making `output`, and what it wrote; None if it is to be made."""
    mark = read_whole(mark_of(output), _Mark)
    if mark is None:
        return None
    files = {uri: Written(*written) for uri, written in mark["files"].items()}
    is_whole = output in files and all(storage.is_unchanged(uri, written) for uri, written in files.items())
    return (mark["counts"], files) if is_whole else None


def skip_or(output: str, work: Callable[[], Counts]) -> Counts:
    """The counts of `output` if an earlier attempt at this run finished it, else those of making it by `work`."""
    there = finished(output)
    if there is not None:
        note(there[1])
        return there[0]
    place = mark_of(output)
    storage.delete(place)
    with recording() as written:
        counts = work()
    storage.write_json(place, {"counts": counts, "files": written})
    forget(place)  # it is no output
    return counts


def mark_of(output: str) -> str:
    """The mark of the unit whose main output is `output`."""
    return storage.join(storage.parent(output), f"_{storage.name(output)}.json")
