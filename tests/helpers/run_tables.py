"""The tables of a run, written by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dupq import storage
from dupq.archive import partition_of
from dupq.clusters.evidence import Words
from dupq.job.table import Shuffled, Table, one_batch, write_batches
from dupq.stages.terms import TermTables
from dupq.tables import RARITIES, SCORED, TERMS
from dupq.text.keys import Sites
from dupq.text.questions import lists_of

Question = tuple[str, int]  # site and id
Pair = tuple[int, int]  # of keys, the smaller one first
Rows = list[dict[str, Any]]


def write_rows(uri: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    storage.write_table(uri, pa.Table.from_pylist(rows, schema), schema)


def question_row(number: int, **more: Any) -> dict[str, Any]:
    return {"question_id": number, "title": "", "body_html": "", "tags": [], **more}


def on(site: str, *numbers: int) -> list[Question]:
    return [(site, number) for number in numbers]


def key_of(sites: Sites, question: Question) -> int:
    return int(sites.pack(question[0], np.array([question[1]]), "")[0])


def home_of(key: int, parts: int) -> int:
    """The part of a run that a key is in."""
    return int(partition_of(np.array([key]), parts)[0])


def scored_pairs(folder: str, probabilities: dict[Pair, float], parts: int) -> Table:
    """Pairs that the left question lists as its nearest one (SCORED)."""
    rest = {"similarity": 0.5, "rank_left": 1, "title_overlap": 0.0, "text_overlap": 0.0}
    rows = [{"left": a, "right": b, "probability": p, **rest} for (a, b), p in probabilities.items()]
    return table(folder, SCORED, *by_home(rows, "left", parts))


def table(folder: str, schema: pa.Schema, *parts: Rows) -> Table:
    """A table of these partitions."""
    made = Table(folder, schema, len(parts))
    for part, rows in enumerate(parts):
        write_rows(made.file(part), rows, schema)
    return made


def by_home(rows: Rows, column: str, parts: int) -> list[Rows]:
    """The rows of each partition, by a key."""
    return [[row for row in rows if home_of(row[column], parts) == part] for part in range(parts)]


def terms_table(keys: pa.Array, words: Words) -> pa.Table:
    """Return the words of the questions `keys` as rows of TERMS."""
    marks, tags = (lists_of(terms)[0] for terms in (words.marks, words.tags))
    return pa.table([keys, *lists_of(words.titles), *lists_of(words.texts), marks, tags], schema=TERMS)


def write_terms(
    folder: str, shards: int, parts: int, keys: np.ndarray, words: Words, rarities: np.ndarray
) -> TermTables:
    """The terms of questions, every so manieth in a shard."""
    rarity = Table(f"{folder}/rarities", RARITIES, 1)
    storage.write_table(rarity.file(0), pa.table([pa.array(rarities)], schema=RARITIES), RARITIES)
    every = terms_table(pa.array(keys), words)
    files = tuple(f"{folder}/terms/part-{number:05d}.arrow" for number in range(shards))
    for number, uri in enumerate(files):
        rows = np.flatnonzero(np.arange(len(keys)) % shards == number)
        spread = [rows[partition_of(keys[rows], parts) == part] for part in range(parts)]
        write_batches(uri, (one_batch(every.take(pa.array(some))) for some in spread), TERMS)
    return TermTables(Shuffled(files, TERMS, parts), rarity)


def contents(folder: str) -> dict[str, bytes]:
    """What is in each file of a folder."""
    return {file.relative: Path(file.uri).read_bytes() for file in storage.list_files(folder)}


class CutOffError(Exception):
    """What ends an attempt at a run."""


def cut_off(outputs: int, work: Callable, *arguments: Any) -> bool:
    """Whether an attempt was cut off that ends when it would write one file more than so many, tables and marks."""
    left, open_output = iter(range(outputs)), storage.open_output

    def limited(uri: str, **more: Any) -> Any:
        if next(left, None) is None:
            raise CutOffError
        return open_output(uri, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "open_output", limited)
        try:
            work(*arguments)
        except CutOffError:
            return True
    return False
