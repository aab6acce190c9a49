"""Saving an experiment's examples to a folder, and reading them back, so that everyone can measure on the same ones."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.encoders.saved import PARTS
from dupq.errors import DupqError
from dupq.training.pairs import Pairs
from dupq_papers.data.examples import Experiment, Queries
from dupq_papers.schemas import EXAMPLE_PAIRS, EXAMPLE_QUERIES
from dupq_papers.systems.collection import Examples

_TRAIN, _DEVELOPMENT, _TEST = PARTS


def write_experiment(folder: str, found: Experiment) -> None:
    """Write `pairs.parquet`, `queries.parquet` and `counts.json` into `folder`, the same bytes each time."""
    examples = found.examples
    parts = {_TRAIN: examples.training, _DEVELOPMENT: examples.development, _TEST: found.test}
    pairs = pa.concat_tables([_pairs_table(part, pairs) for part, pairs in parts.items()])
    queries = {_DEVELOPMENT: examples.development_queries, _TEST: found.test_queries}
    rows = [row for part, asked in queries.items() for row in _query_rows(part, asked)]
    storage.write_table(storage.join(folder, "pairs.parquet"), pairs, EXAMPLE_PAIRS)
    storage.write_table(
        storage.join(folder, "queries.parquet"), pa.Table.from_pylist(rows, EXAMPLE_QUERIES), EXAMPLE_QUERIES
    )
    storage.write_json(storage.join(folder, "counts.json"), found.counts)


def read_experiment(folder: str) -> Experiment:
    """What `write_experiment` wrote. Raises DupqError for a file that is missing, damaged or of another form."""
    pairs = storage.read_table(storage.join(folder, "pairs.parquet"), EXAMPLE_PAIRS)
    queries = storage.read_table(storage.join(folder, "queries.parquet"), EXAMPLE_QUERIES)
    strange = set(pc.unique(pairs["part"]).to_pylist() + pc.unique(queries["part"]).to_pylist()) - set(PARTS)
    if strange:
        raise DupqError(f"{folder}: part '{min(strange)[:50]}'; {', '.join(PARTS)} expected")
    counts = storage.read_as(storage.join(folder, "counts.json"), dict[str, int], "write the examples again")
    train, development, test = (_pairs(pairs, part) for part in PARTS)
    return Experiment(
        Examples(train, development, _queries(queries, _DEVELOPMENT)), test, _queries(queries, _TEST), counts
    )


def _pairs_table(part: str, pairs: Pairs) -> pa.Table:
    return pa.table([pa.array([part] * len(pairs.labels), pa.string()), *map(pa.array, pairs)], schema=EXAMPLE_PAIRS)


def _query_rows(part: str, asked: Queries) -> Iterator[dict[str, str | int | list[int]]]:
    for key, duplicates in asked.items():
        yield {"part": part, "key": key, "duplicates": sorted(duplicates)}


def _pairs(table: pa.Table, part: str) -> Pairs:
    own = table.filter(pc.equal(table["part"], part))
    left, right, labels = (np.array(own[name]) for name in ("left", "right", "label"))
    return Pairs(left, right, labels)


def _queries(table: pa.Table, part: str) -> Queries:
    own = table.filter(pc.equal(table["part"], part))
    rows = zip(own["key"].to_pylist(), own["duplicates"].to_pylist(), strict=True)
    return {key: set(duplicates) for key, duplicates in rows}
