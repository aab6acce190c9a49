"""Tables of keys."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dupq import storage
from dupq.errors import DupqError
from dupq.runs.question_tables import all_keys, key_span, read_around
from dupq.tables import KEY_PAIRS, KEYS
from dupq.text.keys import pairs_in

ROWS = 65_536  # of a row group


def test_a_file_tells_its_smallest_and_its_largest_key(tmp_path: Path) -> None:
    for name, keys in (("b", [3, 7]), ("a", [5]), ("c", [])):
        storage.write_table(f"{tmp_path}/{name}.parquet", pa.table([pa.array(keys, pa.int64())], schema=KEYS), KEYS)
    assert [key_span(str(tmp_path / f"{name}.parquet")) for name in "abc"] == [(5, 5), (3, 7), None]


@pytest.mark.parametrize(
    ("keys", "read"),
    [
        ([ROWS + 1], range(ROWS + 1, ROWS + 2)),
        ([2 * ROWS - 1, ROWS + 9], range(ROWS + 9, 2 * ROWS)),
        ([9 * ROWS], ()),
        ([], ()),
    ],
)
def test_only_row_groups_with_wanted_keys_are_read(tmp_path: Path, keys: list[int], read: Iterable[int]) -> None:
    uri = str(tmp_path / "keys.parquet")
    storage.write_table(uri, pa.table([pa.array(np.arange(3 * ROWS))], schema=KEYS), KEYS)
    content = bytearray(storage.read_bytes(uri))
    groups = storage.read_footer(uri)
    for group in (0, 2):  # damaged, so that reading them would fail
        start = groups.row_group(group).column(0).data_page_offset
        content[start : start + 50] = b"x" * 50
    storage.write_bytes(uri, bytes(content))
    assert read_around(uri, KEYS, np.array(keys, np.int64))["key"].to_pylist() == list(read)
    with pytest.raises(DupqError, match="not a readable Parquet file"):
        read_around(uri, KEYS, np.array([0]))


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
