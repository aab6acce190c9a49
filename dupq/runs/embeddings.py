"""Writing and reading the table of embeddings."""

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq import storage, tables
from dupq.errors import DupqError
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.fingerprints import fingerprints
from dupq.text.keys import Sites

_EXPONENT = 0x7C00  # the bits of a float16's exponent: all ones where it is infinite or no number


def embeddings_table(embeddings: Embeddings, sites: Sites) -> pa.Table:
    """The rows of a run's `embeddings/`, in the order that they are given in."""
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


def write_embeddings(uri: str, embeddings: Embeddings, sites: Sites) -> None:
    """One file of embeddings, in the order that they are given in."""
    schema = tables.embeddings(embeddings.vectors.shape[1], embeddings.words is not None)
    storage.write_table(uri, embeddings_table(embeddings, sites), schema)


def read_embeddings(uri: str, sites: Sites) -> Embeddings:
    """One file of embeddings; their keys are sorted as in the file."""
    return embeddings_of(storage.read_table(uri), sites, uri)


def embeddings_of(table: pa.Table, sites: Sites, uri: str) -> Embeddings:
    """The embeddings that a table holds.

    Raises DupqError naming `uri` for a missing column, and the question of a vector that is not finite.
    """
    for name in ("site", "question_id", "embedding"):
        if name not in table.column_names:
            raise DupqError(f"{uri}: column '{name}' is missing; it has {', '.join(table.column_names)}")
    keys = sites.pack_columns(table["site"], table["question_id"], uri)
    dimensions = table.schema.field("embedding").type.list_size
    vectors = _values(table["embedding"]).to_numpy(zero_copy_only=False).astype(np.float16).reshape(-1, dimensions)
    wrong = np.flatnonzero((vectors.view(np.uint16) & _EXPONENT).max(axis=1, initial=0) == _EXPONENT)
    if len(wrong):
        raise DupqError(f"{uri}: the embedding of question {sites.label(int(keys[wrong[0]]))} is not finite")
    return Embeddings(keys, vectors, _bags(table) if "words" in table.column_names else None)


def _values(column: pa.ChunkedArray) -> pa.Array:
    flat = [chunk.flatten() for chunk in column.chunks]
    return pa.concat_arrays(flat) if flat else pa.array([], column.type.value_type)


def _bags(table: pa.Table) -> sparse.csr_array:
    lengths = np.concatenate([[0], *(np.asarray(chunk.value_lengths()) for chunk in table["words"].chunks)])
    words = _values(table["words"]).to_numpy()
    weights = _values(table["word_weights"]).to_numpy(zero_copy_only=False).astype(np.float32)
    columns = int(words.max(initial=0)) + 1
    return sparse.csr_array((weights, words, np.cumsum(lengths, dtype=np.int64)), shape=(len(table), columns))
