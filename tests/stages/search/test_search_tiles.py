"""The all-pairs search: tiles and lists."""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from searched import (
    FLOOR,
    MIX,
    SITES,
    K,
    beyond,
    contents,
    directed,
    listings,
    lists,
    made_up,
    planned_for,
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
from dupq.stages.search import everything
from dupq.stages.search.above_threshold import ABOVE_FLOOR, FULL, LEFT_OUT
from dupq.stages.search.blocks import waves
from dupq.text.keys import ID_BITS


@pytest.mark.parametrize(("measure", "scope"), [(Measure(), "all"), (MIX, "site")])
def test_lists_and_pairs_are_those_of_a_full_sort(measure: Measure, scope: str, tmp_path: Path) -> None:
    archive = made_up([120, 0, 90])
    wanted = search_request(measure, scope=scope, block_rows=53)
    files, made = write(archive, tmp_path, SITES)
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


def test_a_plan_is_for_the_chosen_sites_alone_and_stays_as_the_first_attempt_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_answer_does_not_depend_on_blocks_or_shards(tmp_path: Path) -> None:
    archive = made_up([100, 50, 20], seed=3)
    expected, _ = search(archive, tmp_path / "one", search_request(block_rows=71))
    for rows, shards in ((25, 1), (64, 3), (1000, 2)):
        found, _ = search(archive, tmp_path / str(rows), search_request(block_rows=rows), shards)
        assert lists(found) == lists(expected)
        assert directed(found) == directed(expected)
        assert listings(found) == listings(expected)


def test_an_archive_without_questions_has_no_neighbours(tmp_path: Path) -> None:
    files, report = search(made_up([0, 0, 0]), tmp_path, search_request())
    assert lists(files) == directed(files) == {}
    assert report.rows_out == 0


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
def test_a_search_that_is_cut_off_is_finished_to_the_same_bytes(
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
