"""Pairs above the floor beyond lists."""

from pathlib import Path

import numpy as np
import pytest
from searched import (
    FLOOR,
    PARTS,
    SITES,
    beyond,
    contents,
    directed,
    lists,
    made_up,
    rows_for_pairs,
    search,
    search_request,
    searched,
    slowly,
    write,
)

from dupq import storage
from dupq.stages.search import above_threshold
from dupq.stages.search.above_threshold import ABOVE_FLOOR, FULL, LEFT_OUT
from dupq.tables import ROW_RANGES


@pytest.mark.parametrize("floor", [None, 0.99999])
def test_where_no_list_is_full_of_pairs_above_the_floor_nothing_is_searched_again(
    floor: float | None, tmp_path: Path
) -> None:
    archive, wanted = made_up([40, 0, 0]).take(slice(0, 30)), search_request()
    files, made = write(archive, tmp_path, SITES)
    searched(files, made, wanted)
    before = contents(files)
    report = beyond(files, wanted, floor)
    assert (report.rows_in, report.rows_out) == (30, 0)
    assert contents(files) == before


def test_too_many_pairs_are_counted_and_the_nearest_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(above_threshold, "PAIRS_PER_QUESTION", 3)
    archive, wanted = made_up([100, 80, 0]), search_request(block_rows=50)
    files, made = write(archive, tmp_path, SITES)
    searched(files, made, wanted)
    report = beyond(files, wanted, 0.0)
    near, over = slowly(archive, wanted, 0.0)
    assert report.counts[FULL] == len(near)
    assert report.caps[LEFT_OUT] == report.counts[ABOVE_FLOOR] == len(over) > 3 * 180
    assert {key: row[0] for key, row in lists(files).items()} == near
    assert all(rank for _, rank in directed(files).values())


def test_a_tile_with_more_pairs_than_a_task_holds_is_searched_again_for_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, wanted = made_up([100, 80, 0]), search_request(block_rows=50)
    monkeypatch.setattr(above_threshold, "PAIRS_PER_QUESTION", 200)
    expected, _ = search(archive, tmp_path / "one", wanted)
    whole = beyond(expected, wanted, FLOOR)
    files, made = write(archive, tmp_path / "two", SITES)
    searched(files, made, wanted)
    monkeypatch.setattr(above_threshold, "_AT_ONCE", 60)
    for _ in range(2):
        report = beyond(files, wanted, FLOOR)
        assert (report.rows_out, report.counts, report.caps) == (whole.rows_out, whole.counts, whole.caps)
        found = [
            table["pairs"].to_pylist()
            for table in (
                storage.read_table(file.uri, ROW_RANGES)
                for file in storage.list_files(f"{files.uri}/work/beyond_lists/beyond/ranges", ".parquet")
            )
        ]
        assert max(map(len, found)) > 1
        assert directed(files) == directed(expected)
        rows = [len(rows_for_pairs(files).read(part)) for part in range(PARTS)]
        assert sum(rows) == sum(len(others) for others, _ in lists(files).values()) + report.rows_out


def test_lists_that_are_full_are_looked_for_anew_where_an_attempt_went_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when it was known which they are, of an increment, whose files hold others than a whole search's."""
    archive, wanted = made_up([150, 40, 0], seed=7), search_request(block_rows=80)
    before, _ = search(archive.take(np.arange(len(archive.keys)) % 40 != 0), tmp_path / "before", wanted)
    full, _ = search(archive, tmp_path / "full", wanted)
    files, made = write(archive, tmp_path / "since", SITES)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    searched(files, made, wanted, before)
    with monkeypatch.context() as patch:
        patch.setattr(above_threshold, "select", killed)
        with pytest.raises(KeyboardInterrupt):
            beyond(files, wanted, FLOOR)
    Path(before.path("stages", "neighbours.json")).unlink()
    searched(files, made, wanted, before)
    found = beyond(files, wanted, FLOOR)
    assert found.counts == beyond(full, wanted, FLOOR).counts
    assert directed(files) == directed(full)
