"""Tables of keys."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dupq import storage
from dupq.runs.question_tables import all_keys, key_span
from dupq.tables import KEY_PAIRS, KEYS
from dupq.text.keys import pairs_in


def test_a_file_tells_its_smallest_and_its_largest_key(tmp_path: Path) -> None:
    for name, keys in (("b", [3, 7]), ("a", [5]), ("c", [])):
        storage.write_table(f"{tmp_path}/{name}.parquet", pa.table([pa.array(keys, pa.int64())], schema=KEYS), KEYS)
    assert [key_span(str(tmp_path / f"{name}.parquet")) for name in "abc"] == [(5, 5), (3, 7), None]


def test_pairs_are_rows(tmp_path: Path) -> None:
    assert pairs_in(pa.table([[1, 2], [5, 6]], schema=KEY_PAIRS)).tolist() == [[1, 5], [2, 6]]


def test_all_keys_are_those_of_all_files(tmp_path: Path) -> None:
    for name, keys in (("one", [4, 1]), ("two", [3])):
        texts = pa.table({"key": pa.array(keys), "title": [""] * len(keys), "text": [""] * len(keys)})
        pq.write_table(texts, tmp_path / f"{name}.parquet")
    assert all_keys(str(tmp_path)).tolist() == [1, 3, 4]
