"""The all-pairs search: tiles, lists, and pairs above the floor beyond lists."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from searched import (
    FLOOR,
    MIX,
    PARTS,
    SITES,
    K,
    beyond,
    contents,
    directed,
    listings,
    lists,
    made_up,
    planned_for,
    rows_for_pairs,
    search,
    search_request,
    searched,
    slow_listings,
    slowly,
    write,
)

from dupq import storage
from dupq.errors import SettingError
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.stages.search import above_threshold, everything
from dupq.stages.search.above_threshold import ABOVE_FLOOR, FULL, LEFT_OUT
from dupq.stages.search.blocks import waves
from dupq.tables import ROW_RANGES
from dupq.text.keys import ID_BITS


@pytest.mark.parametrize(
    ("measure", "scope", "rows", "shards"), [(Measure(), "all", 53, 2), (MIX, "site", 64, 3), (MIX, "all", 1000, 1)]
)
def test_lists_and_pairs_are_of_a_full_sort(
    measure: Measure, scope: str, rows: int, shards: int, tmp_path: Path
) -> None:
    archive = made_up([120, 0, 90])
    wanted = search_request(measure, scope=scope, block_rows=rows)
    files, made = write(archive, tmp_path, SITES, shards)
    report = searched(files, made, wanted)
    found_beyond = beyond(files, wanted, 0.6)
    near, over = slowly(archive, wanted, 0.6)
    assert {key: row[0] for key, row in lists(files).items()} == near
    assert report.rows_out == len(near)
    ranked = {(min(a, b), max(a, b)) for a, others in near.items() for b in others}
    assert len(set(over) - ranked) > 50
    found = directed(files)
    assert set(found) == ranked | set(over)
    assert {pair for pair, (_, rank) in found.items() if rank is None} == set(over) - ranked
    assert {pair: found[pair][0] for pair in over} == pytest.approx(over)
    full = {key for key, others in near.items() if sum((min(key, b), max(key, b)) in over for b in others) == K}
    among = [pair for pair in over if set(pair) <= full]
    assert (found_beyond.counts[FULL], found_beyond.counts[ABOVE_FLOOR]) == (len(full), len(among))
    assert (found_beyond.rows_in, found_beyond.rows_out, found_beyond.caps[LEFT_OUT]) == (210, len(among), 0)
    told, expected = listings(files), slow_listings(files, measure)
    assert told.keys() == expected.keys()
    for pair, listing in told.items():
        assert listing == pytest.approx(expected[pair], rel=1e-3, abs=1e-4)


def test_only_chosen_sites_are_searched(tmp_path: Path) -> None:
    archive = made_up([50, 60, 40])
    files, _ = search(archive, tmp_path, search_request(only=("a.example.com", "c.example.com"), block_rows=30))
    chosen = archive.take(archive.keys >> ID_BITS != 1)
    assert {key: row[0] for key, row in lists(files).items()} == slowly(chosen, search_request())[0]
    with pytest.raises(SettingError, match=r"no questions of d\.example\.com"):
        search(archive, tmp_path / "other", search_request(only=("d.example.com",)))


def test_a_plan_is_for_chosen_sites_and_stays_as_first_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, shards = write(made_up([50, 60, 40]), tmp_path, SITES)
    wanted, questions, rows = search_request(only=("a.example.com", "c.example.com")), [], iter((30, 45))

    def block_rows(*arguments: int) -> int:
        questions.append(arguments[0])
        return next(rows)

    monkeypatch.setattr(everything, "block_rows", block_rows)
    blocks = planned_for(files, shards, wanted)
    chosen = [shard.file for shard in shards if shard.site != SITES[1]]
    assert sorted({storage.name(span.file) for block in blocks for span in block.spans}) == chosen
    assert [block.size for block in blocks] == [30, 30, 30]
    assert planned_for(files, shards, wanted) == blocks
    assert questions == [90, 90]


def test_a_wave_writes_about_k_neighbours_a_question(tmp_path: Path) -> None:
    questions, blocks = 800, 16
    vectors = np.random.default_rng(3).normal(size=(questions, 16)).astype(np.float16)
    files, shards = write(Embeddings(np.arange(questions), vectors), tmp_path / "run", SITES)
    searched(files, shards, search_request(Measure("cosine"), block_rows=questions // blocks))
    written = [
        len(storage.read_table(file.uri)["neighbours"].combine_chunks().flatten())
        for file in storage.list_files(files.path("work", "neighbours", "tiles"), ".parquet")
        if not file.relative.startswith("lists-")
    ]
    assert len(written) == blocks + blocks * (blocks - 1)
    a_wave = 1.5 * K * questions  # of random vectors twice as many in the first wave, and then ever nearer to one
    assert sum(written) < a_wave * (2 + len(waves([range(blocks)])))


@pytest.mark.parametrize("tiles", [1, 12])  # of 15
def test_a_search_cut_off_is_finished_to_the_same_bytes(
    tiles: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, wanted = made_up([300, 0, 0], seed=9), search_request(block_rows=50)
    undisturbed, _ = search(archive, tmp_path / "one", wanted)
    files, made = write(archive, tmp_path / "two", SITES)
    with monkeypatch.context() as patch:
        patch.setattr(everything.search_tile, "function", _interrupted_after(tiles, everything.search_tile.function))
        with pytest.raises(KeyboardInterrupt):
            searched(files, made, wanted)
    written = {path: path.stat().st_mtime_ns for path in Path(files.path("work", "neighbours", "tiles")).rglob("*.*")}
    assert sum(path.suffix == ".parquet" for path in written) >= tiles
    searched(files, made, wanted)
    assert all(path.stat().st_mtime_ns == made_at for path, made_at in written.items())
    beyond(files, wanted, FLOOR)
    assert contents(files) == contents(undisturbed)


def _interrupted_after(calls: int, function: Callable) -> Callable:
    """The function; the call after so many is interrupted."""
    left = iter(range(calls))

    @functools.wraps(function)
    def called(*arguments: object) -> object:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return function(*arguments)

    return called


@pytest.mark.parametrize("floor", [None, 0.99999])
def test_where_no_list_is_full_above_the_floor_nothing_is_searched_again(floor: float | None, tmp_path: Path) -> None:
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


def test_a_tile_with_more_pairs_than_a_task_holds_is_searched_again(
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


def test_full_lists_are_looked_for_anew_after_an_attempt_of_another_way(
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
