import hashlib
import json
import os
import pickle
import random
import shutil
from pathlib import Path

import pytest
from filelock import FileLock
from moments import Moments
from small_archive import Small, make_small

from dupq.job import cluster


@pytest.fixture(scope="session")
def small(of_all_processes: Path) -> Small:
    """One for all processes of a test session: the first that asks for it makes it."""
    folder = of_all_processes / "chaos"
    made = folder / "small.pickle"
    with FileLock(folder.with_suffix(".lock")):
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a process that failed at it
            folder.mkdir()
            made.write_bytes(pickle.dumps(make_small(folder)))
    return pickle.loads(made.read_bytes())


@pytest.fixture
def moments(request: pytest.FixtureRequest, dice: random.Random) -> Moments:
    """As many as DUPQ_CHAOS says; 0: all (`make chaos`). Kept is a tally of this version of the code, if asked for."""
    folder = os.environ.get("DUPQ_CHAOS_TALLY")
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    version = hashlib.sha256(json.dumps(cluster.build()).encode()).hexdigest()[:12]
    tally = Path(folder, f"{version}.tsv") if folder is not None else None
    return Moments(int(os.environ.get("DUPQ_CHAOS", "1")), request.node.name, dice, tally)
