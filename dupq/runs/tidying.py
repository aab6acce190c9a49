"""The end of a finished run: of `work/`, only what a later run or a reader needs is kept."""

import logging

from dupq import storage
from dupq.errors import DupqError
from dupq.runs import inventory
from dupq.runs.layout import RunLayout

_log = logging.getLogger(__name__)


def needed_later(run: str) -> frozenset[str]:
    """The files and folders of the work of a finished run that are still read.

    By a later run with --previous: the texts, the lists, a teacher's vectors, and what these were made by. By
    `Run.at`: the calibration and the rarities. By `Run.similar` and look-ups with datasketch: the
    signatures.
    """
    files = RunLayout(run)
    neighbours = files.neighbours
    texts = (files.texts, files.contents, files.texts_made_as, files.encoding.made_as)
    lists = (neighbours.request, neighbours.nearest)
    others = (files.calibration, files.rarities, files.signatures)
    return frozenset((*texts, *lists, *files.teacher, *others))


def tidy(run: str, really: bool = True) -> int:
    """Remove what nothing needs of the work of a finished run; returns its bytes. Without `really`, count only."""
    return inventory.clear(storage.join(run, "work"), needed_later(run), really)


def tidy_at_end(run: str) -> None:
    """The same, where a failure is only told: the run is whole, and the next attempt or `dupq prune` tidies again."""
    _tidy_or_warn(run, really=True)


def is_untidy(run: str) -> bool:
    """Whether `tidy_at_end` has something to do; a failure is only told too."""
    return _tidy_or_warn(run, really=False) > 0


def _tidy_or_warn(run: str, really: bool) -> int:
    try:
        return tidy(run, really)
    except DupqError as error:
        _log.warning(f"{run}: what is left of the work could not be listed or removed ({error})")
        return 0
