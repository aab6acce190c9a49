"""Keys of a run's questions, and embeddings as tables."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from dupq import storage, tables
from dupq.errors import DupqError
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import fingerprints
from dupq.tables import TEXTS
from dupq.text.keys import Sites


def sorted_keys(tables: Iterable[pa.Table]) -> np.ndarray:
    """Return the keys of tables, sorted. Memory: 16 bytes per key at the peak."""
    keys = np.concatenate([np.zeros(0, np.int64), *(table["key"].to_numpy() for table in tables)])
    keys.sort()
    return keys


def key_span(uri: str) -> tuple[int, int] | None:
    """Return the smallest and the largest key of a table, its first column, from the footer; None if it has no rows."""
    footer = storage.read_footer(uri)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    spans = [group.column(0).statistics for group in groups if group.num_rows]
    return (min(span.min for span in spans), max(span.max for span in spans)) if spans else None


def all_keys(folder: str) -> np.ndarray:
    """Return the keys of all questions, sorted. Memory: 16 bytes per key at the peak."""
    return sorted_keys(storage.read_table(file.uri, TEXTS, ["key"]) for file in storage.list_files(folder, ".parquet"))


_EXPONENT = 0x7C00  # the bits of a float16's exponent: all ones if it is infinite or NaN


def embeddings_table(embeddings: Embeddings, sites: Sites) -> pa.Table:
    """Return the rows of a run's `embeddings/`, in the order of `embeddings`."""
    dimensions = embeddings.vectors.shape[1]
    flat = pa.array(embeddings.vectors.ravel(), tables.EMBEDDING_TYPE)
    columns = [*sites.columns(embeddings.keys), pa.FixedSizeListArray.from_arrays(flat, dimensions)]
    if embeddings.words is not None:
        bags = embeddings.words
        offsets = pa.array(bags.indptr.astype(np.int32))
        columns += [
            pa.ListArray.from_arrays(offsets, pa.array(bags.indices.astype(np.int32))),
            pa.ListArray.from_arrays(offsets, pa.array(bags.data.astype(np.float16))),
        ]
    columns.append(pa.array(fingerprints(embeddings)))
    return pa.table(columns, schema=tables.embeddings(dimensions, embeddings.words is not None))


def read_embeddings(uri: str, sites: Sites) -> Embeddings:
    """Return a file of embeddings, sorted by key as in the file."""
    return embeddings_of(storage.read_table(uri), sites, uri)


def embeddings_of(table: pa.Table, sites: Sites, uri: str) -> Embeddings:
    """Return the embeddings in a table.

    Raises DupqError naming `uri` for a missing column, or the question of a vector that is not finite.
    """
    for name in ("site", "question_id", "embedding"):
        if name not in table.column_names:
            raise DupqError(f"{uri}: column '{name}' is missing; it has {', '.join(table.column_names)}")
    keys = sites.pack_columns(table["site"], table["question_id"], uri)
    dimensions = table.schema.field("embedding").type.list_size
    vectors = pc.list_flatten(table["embedding"]).to_numpy().astype(np.float16).reshape(-1, dimensions)
    wrong = np.flatnonzero((vectors.view(np.uint16) & _EXPONENT).max(axis=1, initial=0) == _EXPONENT)
    if len(wrong):
        raise DupqError(f"{uri}: the embedding of question {sites.label(int(keys[wrong[0]]))} is not finite")
    return Embeddings(keys, vectors, _bags(table) if "words" in table.column_names else None)


def _bags(table: pa.Table) -> sparse.csr_array:
    lengths = pc.list_value_length(table["words"]).to_numpy()
    words = pc.list_flatten(table["words"]).to_numpy()
    weights = pc.list_flatten(table["word_weights"]).to_numpy().astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return sparse.csr_array((weights, words, offsets), shape=(len(table), int(words.max(initial=0)) + 1))
