"""The ids of accepted answers, as the questions name them, sorted in one file, 8 bytes each.

A local file is mapped, so that all tasks of a machine have it in memory once, and of it only what they look at.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dupq import storage

_SCHEMA = pa.schema([pa.field("answer_id", pa.int64(), nullable=False)])


def write_accepted_ids(questions: Sequence[str], uri: str) -> None:
    """Write the ids of all answers that the Parquet files `questions` name as accepted to the file `uri`.

    Memory: 16 bytes for each of them.
    """
    ids = np.concatenate([np.empty(0, np.int64), *map(_named_in, questions)])
    ids.sort()
    with storage.open_output(uri) as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch([pa.array(ids)], schema=_SCHEMA))


def read_accepted_ids(uri: str) -> np.ndarray:
    """The ids in a file of `write_accepted_ids`, ascending; those of a local file are memory-mapped."""
    with storage.open_mapped(uri) as stream:
        return pa.ipc.open_file(stream).get_batch(0).column(0).to_numpy()


def is_accepted(answers: pa.ChunkedArray, accepted: np.ndarray) -> pa.Array:
    """Of each id of `answers` whether it is one of `accepted`, which are ascending."""
    if not len(accepted):
        return pa.array(np.zeros(len(answers), np.bool_))
    ids = answers.to_numpy()
    places = np.minimum(np.searchsorted(accepted, ids), len(accepted) - 1)
    return pa.array(accepted[places] == ids)


def _named_in(questions: str) -> np.ndarray:
    column = storage.read_table(questions, columns=["accepted_answer_id"]).column(0)
    return column.drop_null().to_numpy()
