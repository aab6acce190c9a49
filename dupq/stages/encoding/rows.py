"""What steps of the pipeline hand on: a row of Arrow a shard, so that a shard without questions is a row too.

Ray Data drops blocks without rows, and cuts longer ones as it likes. Each array is one list in the row. Reading copies
it, so that the row's memory in Ray's store is free again, and kernels compiled for arrays that may be written to fit.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import sparse

from dupq.execution.tasks import Outcome
from dupq.neighbours.embeddings import Embeddings
from dupq.recording import Written
from dupq.stages.encoding.shard import Place, Tokens
from dupq.text.token_ids import TokenIds

_TOLD = "told"


def row_of_place(place: Place) -> dict[str, str]:
    """A shard that is to be encoded."""
    return {_TOLD: json.dumps({"place": place})}


def place_in(row: pa.Table) -> Place:
    """What `row_of_place` was given."""
    return Place(*_told(row)["place"])


def row_of_tokens(place: Place, tokens: Tokens, peak: float) -> pa.Table:
    """A shard and its token ids."""
    told = {"place": place, "files": tokens.files, "counts": tokens.counts, "peak": peak}
    arrays = {"keys": tokens.keys, "taken": tokens.taken, "ids": tokens.texts.ids, "offsets": tokens.texts.offsets}
    return _row(told, arrays)


def tokens_in(row: pa.Table) -> tuple[Place, Tokens, float]:
    """What `row_of_tokens` was given."""
    told = _told(row)
    texts = TokenIds(_array(row, "ids"), _array(row, "offsets"))
    tokens = Tokens(_array(row, "keys"), _array(row, "taken"), told["files"], texts, told["counts"])
    return Place(*told["place"]), tokens, told["peak"]


def row_of_embeddings(place: Place, tokens: Tokens, encoded: Embeddings, peak: float) -> pa.Table:
    """A shard and its embeddings; of the tokens all but the ids."""
    told = {"place": place, "files": tokens.files, "counts": tokens.counts, "peak": peak}
    told |= {"dimensions": encoded.vectors.shape[1], "is_lexical": encoded.words is not None}
    arrays = {"keys": tokens.keys, "taken": tokens.taken, "encoded": encoded.keys, "vectors": encoded.vectors.ravel()}
    if encoded.words is not None:
        bags = encoded.words
        arrays |= {"begins": bags.indptr, "words": bags.indices.astype(np.int32)}
        arrays["weights"] = bags.data.astype(np.float16)  # which they are
    return _row(told, arrays)


def embeddings_in(row: pa.Table) -> tuple[Place, Tokens, Embeddings, float]:
    """What `row_of_embeddings` was given."""
    told = _told(row)
    none = TokenIds(np.zeros(0, np.int32), np.zeros(1, np.int64))
    tokens = Tokens(_array(row, "keys"), _array(row, "taken"), told["files"], none, told["counts"])
    vectors, bags = _array(row, "vectors").reshape(-1, told["dimensions"]), None
    if told["is_lexical"]:
        words, weights = _array(row, "words"), _array(row, "weights").astype(np.float32)
        shape = (len(vectors), int(words.max(initial=0)) + 1)
        bags = sparse.csr_array((weights, words, _array(row, "begins")), shape=shape)
    return Place(*told["place"]), tokens, Embeddings(_array(row, "encoded"), vectors, bags), told["peak"]


def row_of_outcome(outcome: Outcome) -> pa.Table:
    """What a finished shard counted, its memory and its files."""
    return _row({"outcome": outcome}, {})


def outcome_in(row: pa.Table) -> Outcome:
    """What `row_of_outcome` was given."""
    counts, peak, files = _told(row)["outcome"]
    return counts, peak, {uri: Written(*written) for uri, written in files.items()}


def _row(told: dict[str, Any], arrays: dict[str, np.ndarray]) -> pa.Table:
    columns = {_TOLD: pa.array([json.dumps(told)])}
    for name, values in arrays.items():
        columns[name] = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), pa.array(values))
    return pa.table(columns)


def _told(row: pa.Table) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(row[_TOLD][0].as_py())
    return told


def _array(row: pa.Table, name: str) -> np.ndarray:
    return np.array(row[name].chunk(0).flatten().to_numpy(zero_copy_only=False))
