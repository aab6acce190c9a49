"""Tables of keys."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dupq.runs.keys import all_keys, key_span, pairs_in, read_around, read_keys, write_keys
from dupq.tables import KEY_PAIRS, KEYS


def test_keys_are_written_once_and_in_order(tmp_path: Path) -> None:
    for name, keys in (("b", [7, 3, 7]), ("a", [5]), ("c", [])):
        write_keys(str(tmp_path / f"{name}.parquet"), np.array(keys, np.int64))
    assert read_keys(str(tmp_path / "b.parquet")).tolist() == [3, 7]
    assert [key_span(str(tmp_path / f"{name}.parquet")) for name in "abc"] == [(5, 5), (3, 7), None]


@pytest.mark.parametrize("group", [1, 3, 100])
@pytest.mark.parametrize("keys", [[], [12], [11, 19], [0, 1], [40], [9, 31], [3, 4, 38]])
def test_what_is_around_keys_has_all_rows_between_them(keys: list[int], group: int, tmp_path: Path) -> None:
    there = np.arange(10, 32, 2)
    uri = str(tmp_path / "some.parquet")
    pq.write_table(pa.table([pa.array(there)], schema=KEYS), uri, row_group_size=group)
    found = read_around(uri, KEYS, np.array(keys, np.int64))["key"].to_pylist()
    between = [key for key in there.tolist() if keys and min(keys) <= key <= max(keys)]
    assert set(between) <= set(found) <= set(there.tolist())
    assert len(found) <= len(between) + 2 * (group - 1)


def test_around_keys_there_may_be_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "none.parquet")
    write_keys(uri, np.zeros(0, np.int64))
    assert len(read_around(uri, KEYS, np.array([1, 2]))) == 0


def test_pairs_are_rows(tmp_path: Path) -> None:
    assert pairs_in(pa.table([[1, 2], [5, 6]], schema=KEY_PAIRS)).tolist() == [[1, 5], [2, 6]]


def test_all_keys_are_those_of_all_files(tmp_path: Path) -> None:
    for name, keys in (("one", [4, 1]), ("two", [3])):
        texts = pa.table({"key": pa.array(keys), "title": [""] * len(keys), "text": [""] * len(keys)})
        pq.write_table(texts, tmp_path / f"{name}.parquet")
    assert all_keys(str(tmp_path)).tolist() == [1, 3, 4]
