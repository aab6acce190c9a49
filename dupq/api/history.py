"""The runs of several nights: `dupq.open_runs`."""

import os
from datetime import UTC, datetime

from dupq import storage
from dupq.api.runs import Run
from dupq.errors import DupqError
from dupq.runs.inventory import known_runs


def open_runs(uri: str | os.PathLike[str]) -> list[Run]:
    """The whole runs in the folder of runs at `uri`, local or on S3, the oldest first.

    Runs that are unfinished, damaged, or that a gate has refused are left out. Raises DupqError if there is none.
    """
    place = storage.absolute(uri)
    found = [known for known in known_runs(place, datetime.now(UTC)) if known.is_whole]
    if not found:
        raise DupqError(f"{place}: no whole run is here; give the --output of dupq dedup")
    return [Run(storage.join(place, known.run_id)) for known in found]
