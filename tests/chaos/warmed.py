"""Does each job once, on a tiny archive, where it is imported: by the process that all attempts are forked from.

So none of them imports and loads compiled functions anew, which takes as long as the work.
"""

import contextlib
import os
import tempfile
import threading
from pathlib import Path

from every_job import JOBS, Given
from inline import without_ray
from riddles.grammar import write_sample
from small_archive import ingest_job, training_job
from tqdm import TMonitor

from dupq.job import progress
from dupq.pipelines.ingest import ingest
from dupq.pipelines.train import train


def _do_each_job(folder: Path) -> None:
    given = Given(str(folder / "inputs"), str(write_sample(folder / "dump", questions=150).archive))
    ingest(ingest_job(given.dump, given.inputs))
    train(training_job(given.inputs, f"{given.inputs}/encoder"))
    for name in ("dedup", "evaluate"):
        JOBS[name].to(given, str(folder / name))()


with (
    tempfile.TemporaryDirectory() as place,
    open(os.devnull, "w") as nowhere,
    contextlib.redirect_stdout(nowhere),
    contextlib.redirect_stderr(nowhere),
    without_ray(),
):
    _do_each_job(Path(place))
    progress.leave()
for thread in threading.enumerate():
    if isinstance(thread, TMonitor):  # bm25s has started it
        thread.exit()
assert threading.active_count() == 1, threading.enumerate()  # a fork has only the one that forks
