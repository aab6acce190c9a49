"""Writing a finished run in the format of another tool, as a folder that was not there before."""

import tempfile
from collections.abc import Callable
from typing import NamedTuple

from dupq import storage
from dupq.errors import DupqError, SettingError, StorageError
from dupq.export import csv_files, embedding_atlas, graphml, huggingface
from dupq.export.written import Written
from dupq.runs.reader import Run, finished_run
from dupq.runs.writer import check_output


class Format(NamedTuple):
    """Writes a run into a folder, and tells how the result is opened; {output} is its place."""

    write: Callable[[Run, str], list[Written]]
    opened_by: str


FORMATS = {
    "embedding-atlas": Format(
        embedding_atlas.write,
        f"embedding-atlas {{output}}/{embedding_atlas.FILE} --text text --x x --y y --neighbors neighbors",
    ),
    "graphml": Format(graphml.write, f"networkx.read_graphml('{{output}}/{graphml.FILE}'), or Gephi"),
    "huggingface": Format(huggingface.write, "datasets.load_dataset('{output}', 'pairs')"),
    "csv": Format(csv_files.write, "a spreadsheet that is told: UTF-8, separated by commas"),
}


def export(run: str, to: str, output: str) -> list[Written]:
    """Write the run at the URI `run` in the format `to` (a key of FORMATS) into the new folder `output` (URI).

    Each file appears when it is whole; if one cannot be written, the others are removed. Raises DupqError for a run
    that is not finished, an output that exists or is inside the run, and what of the run is missing; SettingError for
    another format; StorageError for what cannot be written.
    """
    if to not in FORMATS:
        raise SettingError(f"--to {to}: one of {', '.join(FORMATS)} expected")
    opened = finished_run(run)
    place = storage.absolute(output)
    if f"{place}/".startswith(f"{opened.uri}/"):
        raise DupqError(f"{place}: is inside the run, which must stay as it is; give another --output")
    if storage.exists(place):
        raise DupqError(f"{place}: exists already; remove it, or give another --output")
    check_output(place)
    try:
        return FORMATS[to].write(opened, place)
    except OSError as error:  # of the working files: those of the output are storage's, with errors of its own
        storage.delete_folder(place)
        said = error.strerror or str(error)
        raise StorageError(f"{tempfile.gettempdir()}: cannot be written ({said}); make room, or set TMPDIR") from error
    except BaseException:
        storage.delete_folder(place)
        raise
