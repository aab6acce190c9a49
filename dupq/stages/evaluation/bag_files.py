"""BM25's bags and statistics as files."""

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq import storage
from dupq.evaluation.bm25 import Bags, Counted, Statistics, counted
from dupq.tables import BAG_TERMS, BAGS


def write_bags(uri: str, bags: Bags) -> None:
    """The bags of a shard's texts, term by term."""
    by_term = bags.counts.tocsc()
    found = counted(bags)
    offsets = pa.array(by_term.indptr.astype(np.int32))
    lists = [
        pa.ListArray.from_arrays(offsets, pa.array(column.astype(np.int32)))
        for column in (by_term.indices, by_term.data)
    ]
    table = pa.table([pa.array(bags.terms), pa.array(found.frequencies), *lists], schema=BAGS)
    storage.write_table(uri, table, BAGS, {"texts": found.questions, "tokens": found.tokens})


def read_bags(uri: str) -> Bags:
    """What `write_bags` wrote."""
    table = storage.read_table(uri, BAGS)
    lengths = np.concatenate([[0], *(chunk.value_lengths().to_numpy() for chunk in table["rows"].chunks)])
    rows, counts = (
        np.concatenate([np.zeros(0, np.int32), *(chunk.flatten().to_numpy() for chunk in table[name].chunks)])
        for name in ("rows", "counts")
    )
    shape = (storage.read_counts(uri)["texts"], len(table))
    by_term = sparse.csc_array((counts, rows, np.cumsum(lengths, dtype=np.int64)), shape=shape)
    return Bags(table["term"].to_numpy(), by_term.tocsr())


def read_counted(uri: str) -> Counted:
    """What a file of bags adds to the statistics; the bags are not read."""
    return Counted(*_read_counts(uri, BAGS))


def write_statistics(uri: str, found: Statistics) -> None:
    """The statistics of the archive."""
    table = pa.table([pa.array(found.terms), pa.array(found.frequencies)], schema=BAG_TERMS)
    storage.write_table(uri, table, BAG_TERMS, {"texts": found.questions, "tokens": found.tokens})


def read_statistics(uri: str) -> Statistics:
    """What `write_statistics` wrote."""
    return Statistics(*_read_counts(uri, BAG_TERMS))


def _read_counts(uri: str, schema: pa.Schema) -> tuple[int, int, np.ndarray, np.ndarray]:
    table, counts = storage.read_table(uri, schema, ["term", "questions"]), storage.read_counts(uri)
    return counts["texts"], counts["tokens"], table["term"].to_numpy(), table["questions"].to_numpy()
