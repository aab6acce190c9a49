from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dupq import storage
from dupq.runs.keys import read_around
from dupq.tables import KEYS

ROWS = 65_536  # of a row group


@pytest.mark.parametrize(
    ("wanted", "groups"), [([0], [0]), ([ROWS], [1]), ([ROWS - 1, ROWS], [0, 1]), ([3 * ROWS], []), ([], [])]
)
def test_only_row_groups_with_wanted_keys_are_read(tmp_path: Path, wanted: list[int], groups: list[int]) -> None:
    uri = str(tmp_path / "keys.parquet")
    storage.write_table(uri, pa.table([pa.array(np.arange(2 * ROWS + 5))], schema=KEYS), KEYS)
    found = read_around(uri, KEYS, np.array(wanted, np.int64))["key"].to_numpy()
    assert found.tolist() == [key for group in groups for key in range(group * ROWS, (group + 1) * ROWS)]


def test_a_table_without_rows_has_none_around_a_key(tmp_path: Path) -> None:
    uri = str(tmp_path / "keys.parquet")
    storage.write_table(uri, KEYS.empty_table(), KEYS)
    assert not len(read_around(uri, KEYS, np.array([1])))
