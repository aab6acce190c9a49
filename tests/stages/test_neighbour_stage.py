"""The all-pairs search: tiles, lists, what is new since an earlier run, and pairs above the floor beyond lists."""

import functools
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
import ray
from inline import without_ray
from scipy import sparse

from dupq import storage
from dupq.errors import DupqError, SettingError
from dupq.execution import cluster
from dupq.execution.gpus import Gpus
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import mark_of
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import exact_scores, rule_of, side_of
from dupq.neighbours.measure import Measure
from dupq.runs import writer
from dupq.runs.embeddings import embeddings_table
from dupq.runs.keys import write_keys
from dupq.runs.layout import NeighbourFiles
from dupq.settings.config import Settings
from dupq.settings.dedup import NeighbourSettings
from dupq.shards import Shard
from dupq.stages.neighbours import beyond_lists, exact, increment, waves
from dupq.stages.neighbours.beyond_lists import ABOVE_FLOOR, FULL, LEFT_OUT, find_beyond_lists
from dupq.stages.neighbours.changes import to_sites
from dupq.stages.neighbours.exact import find_neighbours
from dupq.stages.neighbours.increment import find_neighbours_since
from dupq.stages.neighbours.on_gpus import gpus_of_search
from dupq.stages.neighbours.plan import block_rows
from dupq.stages.neighbours.tables import SearchRequest, directed_in, read_nearest
from dupq.tables import NEAREST, embeddings
from dupq.text.keys import ID_BITS, Sites

SITES = ["a.example.com", "b.example.com", "c.example.com"]
MIX = Measure("cosine", 1.0, 0.5)
K, FLOOR, PARTS = 5, 0.5, 2


def made_up(counts: list[int], seed: int = 0) -> Embeddings:
    """Questions of the sites in clusters, some copies, a few without an embedding; bags of words too."""
    generator = np.random.default_rng(seed)
    keys = [np.sort(generator.choice(10**6, count, replace=False)) | (s << ID_BITS) for s, count in enumerate(counts)]
    total = sum(counts)
    centres = generator.normal(size=(total // 6 + 1, 12))
    vectors = centres[generator.integers(0, len(centres), total)] + generator.normal(size=(total, 12)) * 0.4
    vectors[generator.random(total) < 0.1] = vectors[:1].sum(axis=0)
    words = (generator.random((total, 30)) < 0.15) * generator.random((total, 30))
    empty = generator.random(total) < 0.03
    vectors[empty], words[empty] = 0, 0
    bags = sparse.csr_array(words.astype(np.float16).astype(np.float32))
    return Embeddings(np.concatenate(keys), vectors.astype(np.float16), bags)


def write(archive: Embeddings, run: Path, sites: list[str], shards: int = 2) -> tuple[NeighbourFiles, list[Shard]]:
    """The embeddings of a run, each site in `shards` files."""
    files, made = NeighbourFiles(str(run)), []
    for number, site in enumerate(sites):
        of_site = np.flatnonzero(archive.keys >> ID_BITS == number)
        for rows in np.array_split(of_site, shards):
            shard = Shard(len(made), "", site)
            piece = archive.take(rows)
            schema = embeddings(piece.vectors.shape[1], piece.words is not None)
            storage.write_table(
                storage.join(files.embeddings, shard.file), embeddings_table(piece, Sites(sites)), schema
            )
            made.append(shard)
    return files, made


def search_request(
    measure: Measure = MIX,
    sites: Sequence[str] = SITES,
    only: tuple[str, ...] = (),
    **settings: Any,
) -> SearchRequest:
    return SearchRequest(list(sites), NeighbourSettings(k=K, sites=only, **settings), measure, PARTS)


def search(archive: Embeddings, run: Path, wanted: SearchRequest, shards: int = 2) -> tuple[NeighbourFiles, Report]:
    """The lists, and then the pairs above FLOOR that are in none of them."""
    files, made = write(archive, run, wanted.sites, shards)
    report = recorded(files, lambda: find_neighbours(files, made, wanted))
    find_beyond_lists(files, wanted, FLOOR)
    return files, report


def recorded(files: NeighbourFiles, search: Callable[[], Report]) -> Report:
    """What `search` reports, with the record by which a later run believes what it wrote."""
    reports = []

    def find() -> Report:
        reports.append(search())
        return reports[0]

    writer.Run(files.run, {}, Settings(), {}).stage("neighbours", find)
    return reports[0]


def lists(files: NeighbourFiles) -> dict[int, tuple]:
    found = {}
    for file in storage.list_files(files.nearest, ".parquet"):
        keys, nearest = read_nearest(file.uri, K)
        rows = zip(keys.tolist(), nearest.others, nearest.scores, strict=True)
        assert not set(keys.tolist()) & found.keys()
        found.update({key: (o[o >= 0].tolist(), s[o >= 0].tolist()) for key, o, s in rows})
    return found


def lists_in(uri: str) -> list[int]:
    """The questions whose lists are in a file."""
    keys: list[int] = read_nearest(uri, K)[0].tolist()
    return keys


def directed(files: NeighbourFiles) -> dict[tuple[int, int], tuple[float, int | None]]:
    """Each undirected pair with its similarity and better rank, as the pairs stage reads them."""
    found: dict[tuple[int, int], tuple[float, int | None]] = {}
    for part in range(PARTS):
        for row in directed_in(files.directed, PARTS).read(part).to_pylist():
            pair = min(row["query"], row["neighbour"]), max(row["query"], row["neighbour"])
            ranks = [rank for rank in (row["rank"], found.get(pair, (0, None))[1]) if rank]
            found[pair] = row["similarity"], min(ranks, default=None)
    return found


def listings(files: NeighbourFiles) -> dict[tuple[int, int], tuple[int, float]]:
    """How each query lists each neighbour: rank and lift; pairs that neither lists have none of these."""
    found = {}
    for part in range(PARTS):
        for row in directed_in(files.directed, PARTS).read(part).to_pylist():
            if row["rank"] is None:
                assert row["lift"] == 0
            else:
                found[row["query"], row["neighbour"]] = row["rank"], row["lift"]
    return found


def slow_listings(files: NeighbourFiles, measure: Measure) -> dict[tuple[int, int], tuple[int, float]]:
    """From the lists, neighbour by neighbour."""
    found = {}
    for key, (others, scores) in lists(files).items():
        similarities = rule_of(measure).similarities(np.array(scores)).tolist()
        for place, (other, score) in enumerate(zip(others, similarities, strict=True)):
            rest = similarities[:place] + similarities[place + 1 :]
            mean = sum(rest) / len(rest) if rest else 0.0
            found[key, other] = place + 1, (score - mean) / max(measure.highest - mean, 1e-6)
    return found


def slowly(
    archive: Embeddings, wanted: SearchRequest, floor: float = FLOOR
) -> tuple[dict[int, list[int]], dict[tuple[int, int], float]]:
    """Lists, and pairs above a floor, by sorting all float64 scores."""
    rule, there = rule_of(wanted.measure), np.flatnonzero(~archive.is_empty)
    rows, columns = (there[places.ravel()].astype(np.int32) for places in np.indices((len(there), len(there))))
    side = side_of(archive, rule)
    scores = exact_scores(rows, columns, side, side, rule)
    similarities = rule.similarities(scores)
    near: dict[int, list] = {int(key): [] for key in archive.keys[there]}
    over = {}
    for a, b, score, similarity in zip(
        archive.keys[rows].tolist(), archive.keys[columns].tolist(), scores, similarities, strict=True
    ):
        if a == b or (wanted.settings.scope == "site" and a >> ID_BITS != b >> ID_BITS):
            continue
        near[a].append((-score, b))
        if a < b and similarity >= np.float32(floor):
            over[a, b] = float(similarity)
    return {key: [other for _, other in sorted(found)[:K]] for key, found in near.items()}, over


@pytest.mark.parametrize("measure", [Measure(), MIX, Measure("manhattan")])
@pytest.mark.parametrize("scope", ["all", "site"])
def test_lists_and_pairs_are_those_of_a_full_sort(measure: Measure, scope: str, tmp_path: Path) -> None:
    archive = made_up([120, 0, 90])
    wanted = search_request(measure, scope=scope, block_rows=37)
    files, made = write(archive, tmp_path, SITES)
    report = find_neighbours(files, made, wanted)
    floor = 0.05 if measure.kind == "manhattan" else 0.6
    beyond = find_beyond_lists(files, wanted, floor)
    near, over = slowly(archive, wanted, floor)
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
    assert (beyond.counts[FULL], beyond.counts[ABOVE_FLOOR]) == (len(full), len(among))
    assert (beyond.rows_in, beyond.rows_out, beyond.caps[LEFT_OUT]) == (210, len(among), 0)
    told, expected = listings(files), slow_listings(files, measure)
    assert told.keys() == expected.keys()
    for pair, listing in told.items():
        assert listing == pytest.approx(expected[pair], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("floor", [math.inf, 0.99999])
def test_where_no_list_is_full_of_pairs_above_the_floor_nothing_is_searched_again(floor: float, tmp_path: Path) -> None:
    archive, wanted = made_up([40, 0, 0]).take(slice(0, 30)), search_request()
    files, made = write(archive, tmp_path, SITES)
    find_neighbours(files, made, wanted)
    before = contents(files)
    report = find_beyond_lists(files, wanted, floor)
    assert (report.rows_in, report.rows_out) == (30, 0)
    assert contents(files) == before


def test_only_chosen_sites_are_searched(tmp_path: Path) -> None:
    archive = made_up([50, 60, 40])
    files, _ = search(archive, tmp_path, search_request(only=("a.example.com", "c.example.com"), block_rows=30))
    chosen = archive.take(archive.keys >> ID_BITS != 1)
    assert {key: row[0] for key, row in lists(files).items()} == slowly(chosen, search_request())[0]
    with pytest.raises(SettingError, match=r"no questions of d\.example\.com"):
        search(archive, tmp_path / "other", search_request(only=("d.example.com",)))


def test_a_plan_is_made_once_and_for_the_chosen_sites_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, shards = write(made_up([50, 60, 40]), tmp_path, SITES)
    wanted, read, questions = search_request(only=("a.example.com", "c.example.com")), [], []

    def read_counts(uri: str) -> dict[str, int]:
        read.append(Path(uri).name)
        return counts(uri)

    def rows(*arguments: int) -> int:
        questions.append(arguments[0])
        return 30

    counts = storage.read_counts
    monkeypatch.setattr(storage, "read_counts", read_counts)
    monkeypatch.setattr(exact, "block_rows", rows)
    plan = exact.planned(files, shards, wanted)
    searched = [shard.file for shard in shards if shard.site != SITES[1]]
    assert sorted(read) == searched
    assert sorted({span.file for spans in plan.blocks for span in spans}) == searched
    assert questions == [plan.questions] == [90]
    for number in range(3):
        assert plan.rows(number) == 30
    assert exact.planned(files, shards, wanted) == plan
    assert len(read) == len(searched)


@pytest.mark.parametrize(("rows", "shards"), [(25, 1), (64, 3), (1000, 2)])
def test_the_answer_does_not_depend_on_blocks_or_shards(rows: int, shards: int, tmp_path: Path) -> None:
    archive = made_up([150, 80, 20], seed=3)
    expected, _ = search(archive, tmp_path / "one", search_request(block_rows=71))
    found, _ = search(archive, tmp_path / "two", search_request(block_rows=rows), shards)
    assert lists(found) == lists(expected)
    assert directed(found) == directed(expected)
    assert listings(found) == listings(expected)


@pytest.mark.ray
def test_the_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are those of a search without Ray."""
    archive = made_up([200, 60, 0], seed=4)
    with without_ray():
        expected, _ = search(archive, tmp_path / "one", search_request(block_rows=40))
    for workers in (1, 3):
        at_once = functools.partial(run_tasks, cpus=ray.cluster_resources()["CPU"] / (workers + 0.01))  # Ray rounds it
        for module in (exact, beyond_lists):
            monkeypatch.setattr(module, "run_tasks", at_once)
        found, _ = search(archive, tmp_path / str(workers), search_request(block_rows=40))
        assert contents(found) == contents(expected)


def test_too_many_pairs_are_counted_and_the_nearest_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond_lists, "PAIRS_PER_QUESTION", 3)
    archive, wanted = made_up([100, 80, 0]), search_request(block_rows=50)
    files, made = write(archive, tmp_path, SITES)
    find_neighbours(files, made, wanted)
    report = find_beyond_lists(files, wanted, 0.0)
    near, over = slowly(archive, wanted, 0.0)
    assert report.counts[FULL] == len(near)
    assert report.caps[LEFT_OUT] == report.counts[ABOVE_FLOOR] == len(over) > 3 * 180
    assert {key: row[0] for key, row in lists(files).items()} == near
    assert all(rank for _, rank in directed(files).values())


def test_a_tile_with_more_pairs_than_a_task_holds_is_searched_again_for_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, wanted = made_up([100, 80, 0]), search_request(block_rows=50)
    monkeypatch.setattr(beyond_lists, "PAIRS_PER_QUESTION", 200)
    expected, _ = search(archive, tmp_path / "one", wanted)
    whole = find_beyond_lists(expected, wanted, FLOOR)
    files, made = write(archive, tmp_path / "two", SITES)
    find_neighbours(files, made, wanted)
    monkeypatch.setattr(beyond_lists, "_AT_ONCE", 60)
    for _ in range(2):
        report = find_beyond_lists(files, wanted, FLOOR)
        assert (report.rows_out, report.counts, report.caps) == (whole.rows_out, whole.counts, whole.caps)
        kept = [storage.read_counts(file.uri) for file in storage.list_files(files.tiles, "pairs.parquet")]
        found = [count[ABOVE_FLOOR] for count in kept]
        assert min(found) <= 60 < max(found)
        assert [count["rows_out"] for count in kept] == [count if count <= 60 else 0 for count in found]
        assert directed(files) == directed(expected)
        rows = [len(directed_in(files.directed, PARTS).read(part)) for part in range(PARTS)]
        assert sum(rows) == sum(len(others) for others, _ in lists(files).values()) + report.rows_out
        for piece in Path(files.directed).glob("full-*/00000.arrow"):  # as of an attempt that was cut otherwise
            shutil.copy(piece, piece.with_name("00009.arrow"))


def test_an_archive_without_questions_has_no_neighbours(tmp_path: Path) -> None:
    files, report = search(made_up([0, 0, 0]), tmp_path, search_request())
    assert lists(files) == directed(files) == {}
    assert report.rows_out == 0


def changed(archive: Embeddings, generator: np.random.Generator, night: int) -> Embeddings:
    """Some questions gone, some edited, some new."""
    stays = archive.take(generator.random(len(archive.keys)) > 0.03)
    vectors = stays.vectors.copy()
    edited = generator.random(len(vectors)) < 0.03
    vectors[edited] = vectors[generator.permutation(len(vectors))[: edited.sum()]] + np.float16(0.1)
    new = archive.take(generator.random(len(archive.keys)) < 0.04)
    keys = np.concatenate([stays.keys, new.keys + night * 10**8])
    assert stays.words is not None
    assert new.words is not None
    together = Embeddings(
        keys, np.concatenate([vectors, new.vectors]), sparse.csr_array(sparse.vstack([stays.words, new.words]))
    )
    return together.take(np.argsort(keys))


@pytest.mark.parametrize("scope", ["all", "site"])
def test_night_after_night_the_increment_finds_what_a_full_search_finds(scope: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(8)
    archive = made_up([300, 120, 40], seed=5)
    before, _ = search(archive, tmp_path / "night0", search_request(scope=scope, block_rows=150))
    for night in (1, 2, 3):
        archive = changed(archive, generator, night)
        wanted = search_request(scope=scope, block_rows=[0, 130, 200, 70][night])
        full, whole = search(archive, tmp_path / f"full{night}", wanted)
        files, made = write(archive, tmp_path / f"night{night}", SITES, shards=night)
        report = recorded(files, functools.partial(find_neighbours_since, files, made, wanted, before))
        find_beyond_lists(files, wanted, FLOOR)
        assert 0 < report.counts["questions searched"] < 0.3 * len(archive.keys)
        assert lists(files) == lists(full)
        assert directed(files) == directed(full)
        assert listings(files) == listings(full)
        assert report.rows_out == whole.rows_out
        for name, count in whole.counts.items():
            assert report.counts[name] == count
        before = files


def test_a_new_site_moves_the_keys_of_the_others(tmp_path: Path) -> None:
    archive = made_up([0, 200, 50], seed=6)
    old = archive.take(archive.keys >> ID_BITS == 1)
    old = Embeddings(old.keys - (1 << ID_BITS), old.vectors, old.words)
    before, _ = search(old, tmp_path / "before", search_request(sites=SITES[1:2], block_rows=64))
    full, _ = search(archive, tmp_path / "full", search_request(block_rows=64))
    files, made = write(archive, tmp_path / "since", SITES)
    report = find_neighbours_since(files, made, search_request(block_rows=64), before)
    find_beyond_lists(files, search_request(block_rows=64), FLOOR)
    assert report.counts["questions searched"] < 60
    assert lists(files) == lists(full)
    assert directed(files) == directed(full)
    after, _ = search(old, tmp_path / "gone", search_request(sites=SITES[1:2]))
    files, made = write(old, tmp_path / "less", SITES[1:2])
    find_neighbours_since(files, made, search_request(sites=SITES[1:2]), full)
    assert lists(files) == lists(after)


def test_of_the_earlier_lists_a_block_reads_only_files_that_may_have_some_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where keys have moved: the earlier run had a site in front."""
    archive = made_up([60, 200, 50], seed=6)
    before, _ = search(archive, tmp_path / "before", search_request(block_rows=50))
    later = archive.take(archive.keys >> ID_BITS > 0)
    later = Embeddings(later.keys - (1 << ID_BITS), later.vectors, later.words)
    wanted = search_request(sites=SITES[1:], block_rows=50, scope="all")
    files, made = write(later, tmp_path / "since", SITES[1:])
    read, read_table = [], storage.read_table

    def reading(uri: str, *arguments: Any, **options: Any) -> pa.Table:
        table = read_table(uri, *arguments, **options)
        if uri.startswith(before.nearest) and options.get("columns") == ["key"]:
            read.append((uri, table["key"].to_numpy()))
        return table

    plan = exact.planned(files, made, wanted)
    searched = later.keys[:: len(later.keys) // 7]
    write_keys(files.step("changes", "changes"), searched)
    monkeypatch.setattr(storage, "read_table", reading)
    for number in range(len(plan.blocks)):
        increment._write_earlier_lists(files, before, wanted, plan, number)
        mine = lists_in(files.step("earlier", f"rest-{number:05d}"))
        assert not set(mine) & set(searched.tolist())
        keys = np.array(sorted(mine)) + (1 << ID_BITS)
        for _, then in read:
            assert then.min() <= keys.max()
            assert keys.min() <= then.max()
        holding = [
            file.uri
            for file in storage.list_files(before.nearest, ".parquet")
            if set(lists_in(file.uri)) & set(keys.tolist())
        ]
        assert set(holding) <= {uri for uri, _ in read}
        read.clear()


def test_keys_of_a_site_that_is_gone_are_none_of_the_others() -> None:
    keys = np.array([5, (1 << ID_BITS) | 7, (2 << ID_BITS) | 7, -1])
    moved = to_sites(keys, ["a", "b", "c"], ["b", "x"])
    assert moved[1] == 7
    assert (moved[[0, 2, 3]] < 0).all()
    assert len(set(moved.tolist())) == 4


def test_another_measure_searches_everything(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    archive = made_up([90, 0, 0])
    before, _ = search(archive, tmp_path / "before", search_request())
    files, made = write(archive, tmp_path / "since", SITES)
    find_neighbours_since(files, made, search_request(Measure()), before)
    assert "another measure" in capsys.readouterr().out
    assert {key: row[0] for key, row in lists(files).items()} == slowly(archive, search_request(Measure()))[0]


def test_a_run_without_fingerprints_is_no_help(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    archive = made_up([90, 0, 0])
    before, _ = search(archive, tmp_path / "before", search_request())
    for file in storage.list_files(before.embeddings, ".parquet"):
        old = storage.read_table(file.uri).drop_columns(["fingerprint"])
        storage.write_table(file.uri, old, old.schema.remove_metadata())
    files, made = write(archive, tmp_path / "since", SITES)
    find_neighbours_since(files, made, search_request(), before)
    assert "has no embeddings with fingerprints" in capsys.readouterr().out
    assert lists(files) == lists(before)


@pytest.mark.parametrize("damaged", ["asked.json", "plan.json"])
@pytest.mark.parametrize("content", ["[]", "{}", "7", "{", '{"blocks": 3, "sites": []}'])
def test_rubbish_in_an_earlier_run_searches_everything(
    damaged: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    archive = made_up([40, 0, 0])
    before, _ = search(archive, tmp_path / "before", search_request())
    found = lists(before)
    storage.write_bytes(storage.join(storage.parent(before.plan), damaged), content.encode())
    files, made = write(archive, tmp_path / "since", SITES)
    find_neighbours_since(files, made, search_request(), before)
    told = capsys.readouterr().out
    assert "everything is searched" in told
    assert damaged in told
    assert lists(files) == found


def test_an_earlier_run_that_lost_a_file_is_not_believed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    archive = made_up([90, 0, 0])
    before, _ = search(archive, tmp_path / "before", search_request())
    found = lists(before)
    Path(storage.list_files(before.nearest, ".parquet")[0].uri).unlink()
    files, made = write(archive, tmp_path / "since", SITES)
    find_neighbours_since(files, made, search_request(), before)
    assert "has lost some of its neighbours" in capsys.readouterr().out
    assert lists(files) == found


def test_a_question_that_has_no_list_in_the_earlier_run_is_searched_again(tmp_path: Path) -> None:
    archive, wanted = made_up([150, 40, 0], seed=7), search_request(block_rows=40)
    before, _ = search(archive, tmp_path / "before", wanted)
    full = lists(before)
    place = storage.list_files(before.nearest, ".parquet")[1].uri
    storage.write_table(place, storage.read_table(place, NEAREST).slice(7), NEAREST)
    record = storage.read_json(f"{before.run}/stages/neighbours.json")
    size, checksum, _ = storage.as_written(place)
    record["outputs"][place.removeprefix(f"{before.run}/")] |= {"size": size, "checksum": checksum}
    storage.write_json(f"{before.run}/stages/neighbours.json", record)
    files, made = write(archive, tmp_path / "since", SITES)
    report = find_neighbours_since(files, made, wanted, before)
    assert report.counts["questions without a list in the earlier run"] == report.counts["questions searched"] == 7
    assert lists(files) == full


def test_lists_that_are_gone_when_they_are_to_be_taken_over_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, wanted = made_up([150, 40, 0], seed=7), search_request(block_rows=40)
    before, _ = search(archive, tmp_path / "before", wanted)
    full, go = lists(before), increment._go

    def pruned(*arguments: Any) -> None:
        Path(storage.list_files(before.nearest, ".parquet")[0].uri).unlink(missing_ok=True)
        go(*arguments)

    files, made = write(archive, tmp_path / "since", SITES)
    with monkeypatch.context() as patch:
        patch.setattr(increment, "_go", pruned)
        with pytest.raises(DupqError, match="lists of neighbours are gone since"):
            find_neighbours_since(files, made, wanted, before)
    find_neighbours_since(files, made, wanted, before)
    assert lists(files) == full


@pytest.mark.parametrize("is_lost_first", [True, False])
def test_an_attempt_that_goes_another_way_than_the_one_before_believes_none_of_its_lists(
    is_lost_first: bool, tmp_path: Path
) -> None:
    """The earlier run cannot be used in one of two attempts."""
    archive, wanted = made_up([150, 40, 0], seed=7), search_request(block_rows=40)
    then = archive.take(np.arange(len(archive.keys)) % 40 != 0)
    before, _ = search(then, tmp_path / "before", wanted)
    full, _ = search(archive, tmp_path / "full", wanted)
    files, made = write(archive, tmp_path / "since", SITES)
    record = Path(before.run) / "stages" / "neighbours.json"
    for is_lost in (is_lost_first, not is_lost_first):
        kept = record.read_bytes()
        if is_lost:
            record.unlink()
        report = find_neighbours_since(files, made, wanted, before)
        assert ("questions searched" in report.counts) != is_lost
        record.write_bytes(kept)
        if is_lost == is_lost_first:  # killed before it had written the lists of what it searched again
            for file in Path(files.nearest).glob("*queries-*"):
                file.unlink()
    find_beyond_lists(files, wanted, FLOOR)
    assert lists(files) == lists(full)
    assert directed(files) == directed(full)


def test_lists_that_are_full_are_looked_for_anew_where_an_attempt_went_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed when it was known which they are, of an increment, whose files hold others than a whole search's."""
    archive, wanted = made_up([150, 40, 0], seed=7), search_request(block_rows=40)
    before, _ = search(archive.take(np.arange(len(archive.keys)) % 40 != 0), tmp_path / "before", wanted)
    full, _ = search(archive, tmp_path / "full", wanted)
    files, made = write(archive, tmp_path / "since", SITES)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    find_neighbours_since(files, made, wanted, before)
    with monkeypatch.context() as patch:
        patch.setattr(beyond_lists, "write_chosen", killed)
        with pytest.raises(KeyboardInterrupt):
            find_beyond_lists(files, wanted, FLOOR)
    Path(before.request).unlink()
    find_neighbours_since(files, made, wanted, before)
    found = find_beyond_lists(files, wanted, FLOOR)
    assert found.counts == find_beyond_lists(full, wanted, FLOOR).counts
    assert directed(files) == directed(full)


@pytest.mark.parametrize("is_increment", [False, True])
def test_the_report_counts_the_tasks_of_every_step(
    is_increment: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = made_up([150, 40, 0], seed=7)
    wanted = search_request(block_rows=40)
    before, _ = search(archive.take(np.arange(len(archive.keys)) % 40 != 0), tmp_path / "before", search_request())
    files, made = write(archive, tmp_path / "run", SITES)
    tasks = []

    def counted(run_tasks: Callable[..., Report]) -> Callable[..., Report]:
        return lambda *arguments, **options: (tasks.append(len(arguments[2])), run_tasks(*arguments, **options))[1]

    for module in (exact, increment, waves):
        monkeypatch.setattr(module, "run_tasks", counted(module.run_tasks))
    if is_increment:
        report = find_neighbours_since(files, made, wanted, before)
    else:
        report = find_neighbours(files, made, wanted)
    assert report.tasks == sum(tasks) > 15
    assert is_increment == ("questions searched" in report.counts)


def contents(files: NeighbourFiles) -> dict[str, bytes]:
    found = [file.uri for folder in (files.nearest, files.directed) for file in storage.list_files(folder)]
    return {uri.removeprefix(files.run): Path(uri).read_bytes() for uri in found}


SCRIPT = """
import pickle, sys
from dupq.execution import cluster
from dupq.stages.neighbours.exact import find_neighbours
cluster.connect("local")
find_neighbours(*pickle.load(open(sys.argv[1], "rb")))
"""


def test_a_search_that_is_killed_is_finished_to_the_same_bytes(dice: random.Random, tmp_path: Path) -> None:
    import pickle

    archive, wanted = made_up([2000, 0, 0], seed=9), search_request(block_rows=150)
    undisturbed, _ = search(archive, tmp_path / "one", wanted)
    files, made = write(archive, tmp_path / "two", SITES)
    (tmp_path / "call").write_bytes(pickle.dumps((files, made, wanted)))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "call")]
    job = subprocess.Popen(command, start_new_session=True)
    while job.poll() is None and len(list(Path(files.tiles).glob("*/left.parquet"))) < 5:
        time.sleep(0.02)
    time.sleep(dice.random() * 0.3)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    written = [path for path in Path(files.tiles).glob("*/left.parquet") if Path(mark_of(str(path))).exists()]
    tiles = {path: path.stat().st_mtime_ns for path in written}  # the last may be cut off before its mark
    assert tiles
    find_neighbours(files, made, wanted)
    assert all(path.stat().st_mtime_ns == made_at for path, made_at in tiles.items())
    find_beyond_lists(files, wanted, FLOOR)
    assert contents(files) == contents(undisturbed)


def test_blocks_fill_the_memory_at_hand_and_give_every_core_some_tiles() -> None:
    assert block_rows(200_000, 4_000, 8 << 30, 2) == 50_000
    assert block_rows(10**7, 4_000, 8 << 30, 2) == 131_072
    assert block_rows(10**7, 4_000, 1 << 30, 2) == (1 << 28) // 8_000
    assert block_rows(5_000, 4_000, 8 << 30, 2) == 8_192
    assert block_rows(0, 4_000, 8 << 30, 64) >= 1


@pytest.mark.parametrize("scope", ["all", "site"])
@pytest.mark.parametrize("measure", [MIX, Measure("euclidean")])
@without_ray()
def test_a_gpu_writes_the_lists_that_cpus_write(
    tmp_path: Path, measure: Measure, scope: Literal["all", "site"]
) -> None:
    archive, wanted = made_up([90, 0, 140]), search_request(measure, scope=scope, block_rows=37)
    on_cpus, _ = search(archive, tmp_path / "cpus", wanted)
    on_gpu, report = search(archive, tmp_path / "gpu", replace(wanted, gpus=Gpus(1)))
    assert contents(on_gpu) == contents(on_cpus)
    assert report.rows_out == sum(
        map(len, map(lists_in, [f.uri for f in storage.list_files(on_gpu.nearest, ".parquet")]))
    )


@without_ray()
def test_auto_takes_a_gpu_where_cpus_are_slower_and_says_if_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files, shards = write(made_up([40]), tmp_path, SITES[:1])
    plan = exact.planned(files, shards, search_request(sites=SITES[:1]))
    monkeypatch.setattr(cluster, "gpus", lambda: 2)
    auto = replace(search_request(), gpus=Gpus(None))
    caplog.set_level("INFO")
    assert gpus_of_search(files, auto, plan, [10**7]) == 2
    assert gpus_of_search(files, replace(auto, measure=Measure("cosine", 1.0, -0.5)), plan, [10**7]) == 0
    assert not caplog.messages
    assert gpus_of_search(files, auto, plan, [1000]) == 0
    assert caplog.messages == ["searched by CPUs, some 0 s; a GPU would take 8 s"]
    assert gpus_of_search(files, replace(auto, gpus=Gpus(1)), plan, [1000]) == 1
