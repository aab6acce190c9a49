"""Tables of keys."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dupq import storage
from dupq.runs.question_tables import all_keys, key_span, pairs_in, read_around
from dupq.tables import KEY_PAIRS, KEYS

ROWS = 65_536  # of a row group


def test_a_file_tells_its_smallest_and_its_largest_key(tmp_path: Path) -> None:
    for name, keys in (("b", [3, 7]), ("a", [5]), ("c", [])):
        storage.write_table(f"{tmp_path}/{name}.parquet", pa.table([pa.array(keys, pa.int64())], schema=KEYS), KEYS)
    assert [key_span(str(tmp_path / f"{name}.parquet")) for name in "abc"] == [(5, 5), (3, 7), None]


@pytest.mark.parametrize(
    ("keys", "groups"), [([0], [0]), ([ROWS], [1]), ([ROWS - 1, ROWS], [0, 1]), ([3 * ROWS], []), ([], [])]
)
def test_only_row_groups_with_wanted_keys_are_read(tmp_path: Path, keys: list[int], groups: list[int]) -> None:
    uri = str(tmp_path / "keys.parquet")
    storage.write_table(uri, pa.table([pa.array(np.arange(2 * ROWS + 5))], schema=KEYS), KEYS)
    rows = read_around(uri, KEYS, np.array(keys, np.int64))["key"].to_numpy()
    assert rows.tolist() == [key for group in groups for key in range(group * ROWS, (group + 1) * ROWS)]


def test_a_table_without_rows_has_none_around_a_key(tmp_path: Path) -> None:
    uri = str(tmp_path / "keys.parquet")
    storage.write_table(uri, KEYS.empty_table(), KEYS)
    assert not len(read_around(uri, KEYS, np.array([1])))


def test_pairs_are_rows(tmp_path: Path) -> None:
    assert pairs_in(pa.table([[1, 2], [5, 6]], schema=KEY_PAIRS)).tolist() == [[1, 5], [2, 6]]


def test_all_keys_are_those_of_all_files(tmp_path: Path) -> None:
    for name, keys in (("one", [4, 1]), ("two", [3])):
        texts = pa.table({"key": pa.array(keys), "title": [""] * len(keys), "text": [""] * len(keys)})
        pq.write_table(texts, tmp_path / f"{name}.parquet")
    assert all_keys(str(tmp_path)).tolist() == [1, 3, 4]
