"""The table of embeddings as it is read."""

from pathlib import Path

import numpy as np
import pytest

from dupq import storage
from dupq.errors import DupqError
from dupq.neighbours.embeddings import Embeddings, embeddings_of
from dupq.stages.embeddings import embeddings_table
from dupq.text.keys import ID_BITS, Sites

SITES = Sites(["a.example.com", "b.example.com"])


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_an_embedding_that_is_not_finite_is_told_with_file_and_question(value: float, tmp_path: Path) -> None:
    vectors = np.ones((4, 3), np.float16)
    vectors[2, 1] = value
    uri = str(tmp_path / "part-00000.parquet")
    table = embeddings_table(Embeddings(np.array([3, 9, 5, 8]) | (1 << ID_BITS), vectors), SITES)
    storage.write_table(uri, table, table.schema)
    with pytest.raises(DupqError) as raised:
        embeddings_of(storage.read_table(uri), SITES, uri)
    assert str(raised.value) == f"{uri}: the embedding of question b.example.com/5 is not finite"


@pytest.mark.parametrize("shape", [(0, 3), (2, 3)])
def test_finite_ones_of_any_size_are_read_as_they_were_written(shape: tuple[int, int], tmp_path: Path) -> None:
    vectors = np.full(shape, np.finfo(np.float16).max)
    vectors[:, ::2] = np.finfo(np.float16).smallest_subnormal
    written = Embeddings(np.arange(shape[0]), vectors)
    table = embeddings_table(written, SITES)
    storage.write_table(str(tmp_path / "one.parquet"), table, table.schema)
    read = embeddings_of(storage.read_table(str(tmp_path / "one.parquet")), SITES, "one.parquet")
    assert read.keys.tolist() == written.keys.tolist()
    assert read.vectors.tobytes() == vectors.tobytes()
