"""The approximate search: the same tables, exact scores, and its recall measured in the run."""

import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from inline import without_ray
from scipy import sparse
from test_neighbour_stage import (
    FLOOR,
    MIX,
    SCRIPT,
    SITES,
    K,
    contents,
    directed,
    lists,
    made_up,
    search,
    search_request,
    slowly,
    write,
)

from dupq import storage
from dupq.execution.tasks import run_tasks
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import rule_of, side_of
from dupq.neighbours.ivf import centroids, nearer_lists, nearest_lists, spans, unit_hashes
from dupq.neighbours.measure import Measure
from dupq.neighbours.reach import reach
from dupq.runs import writer
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.stages.neighbours import approximate, centres, recall
from dupq.stages.neighbours.approximate import EXACTLY
from dupq.stages.neighbours.beyond_lists import find_beyond_lists
from dupq.stages.neighbours.centres import read_centroids
from dupq.stages.neighbours.increment import find_neighbours_since
from dupq.stages.neighbours.recall import EXACT, FOUND, SAMPLED
from dupq.stages.neighbours.search import find_neighbours
from dupq.stages.neighbours.tables import SearchRequest
from dupq.text.keys import ID_BITS

Choose = Callable[..., None]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Choose how many lists there are, how many are probed, and by which words, in place of the search itself."""

    def choose(lists: int = 0, probes: int = 0, words: int = 0, sample: int = recall.SAMPLE) -> None:
        monkeypatch.setattr(recall, "SAMPLE", sample)
        if lists:
            monkeypatch.setattr(centres, "_root", lambda *_: lists)
        if probes:
            monkeypatch.setattr("dupq.neighbours.reach.cheapest", lambda *given: reach(probes, words, given[-1]))

    return choose


COSINE, EUCLIDEAN = Measure(), Measure("euclidean", 0.6, 0.5)


@pytest.mark.parametrize(("measure", "scope"), [(COSINE, "site"), (MIX, "all"), (Measure("manhattan"), "site")])
def test_whoever_looks_into_all_lists_finds_what_the_exact_search_finds(
    measure: Measure, scope: str, tmp_path: Path, choose: Choose
) -> None:
    choose(lists=7, probes=7, sample=50)
    archive = made_up([160, 3, 90], seed=2)
    common = {"scope": scope, "block_rows": 37}
    exact, whole = search(archive, tmp_path / "exact", search_request(measure, **common))
    files, report = search(archive, tmp_path / "ivf", search_request(measure, **common, method="ivf"))
    assert lists(files) == lists(exact)
    assert directed(files) == directed(exact)
    assert report.rows_out == whole.rows_out
    for name, count in whole.counts.items():
        assert report.counts[name] == count
    assert report.counts[FOUND] == report.counts[EXACT] > 0
    assert 20 < report.counts[SAMPLED] < 90


@pytest.mark.ray
def test_the_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are those of a search without Ray."""
    archive = made_up([200, 60, 0], seed=4)
    wanted = search_request(MIX, block_rows=40, method="ivf")
    with without_ray():
        expected, _ = search(archive, tmp_path / "one", wanted)
    for workers in (1, 3):
        at_once = functools.partial(run_tasks, cpus=ray.cluster_resources()["CPU"] / (workers + 0.01))  # Ray rounds it
        for module in (approximate, recall):
            monkeypatch.setattr(module, "run_tasks", at_once)
        found, _ = search(archive, tmp_path / str(workers), wanted)
        assert contents(found) == contents(expected)


def test_recall_is_counted_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture, choose: Choose) -> None:
    choose(lists=9, probes=2, sample=60)
    archive = made_up([240, 30, 100], seed=4)
    wanted = search_request(MIX, scope="site", block_rows=50, method="ivf")
    files, report = search(archive, tmp_path, wanted)
    near, _ = slowly(archive, wanted)
    found = lists(files)
    sampled = [key for key in near if unit_hashes(np.array([key]))[0] >= 1 - 60 / 370]
    assert report.counts[SAMPLED] == len(sampled)
    assert report.counts[EXACT] == sum(len(near[key]) for key in sampled)
    assert report.counts[FOUND] == sum(len(set(near[key]) & set(found[key][0])) for key in sampled)
    share = report.counts[FOUND] / report.counts[EXACT]
    assert 0.2 < share < 1
    assert f"recall@{K} of the lists: {share:.4f}, of {len(sampled)} questions" in capsys.readouterr().out
    assert found.keys() == near.keys()


@pytest.mark.parametrize(
    ("scope", "words", "measure"),
    [("all", 0, MIX), ("site", 12, MIX), ("all", 33, EUCLIDEAN), ("site", 0, EUCLIDEAN)],
)
def test_lists_are_those_of_the_lists_looked_into(
    scope: str, words: int, measure: Measure, tmp_path: Path, choose: Choose
) -> None:
    probes = 2 if words else 3
    choose(lists=8, probes=probes, words=words)
    archive = made_up([200, 0, 130], seed=11)
    wanted = search_request(measure, scope=scope, block_rows=45, method="ivf")
    files, _ = search(archive, tmp_path, wanted)
    looked = looked_into(archive, wanted, probes, words)
    similarity = slowly(archive, wanted, -9)[1]
    assert all((b in looked[a]) == (a in looked[b]) for a, b in similarity)
    assert sum(map(len, looked.values())) < 0.8 * len(looked) ** 2
    for key, (others, scores) in lists(files).items():
        scored = {other: similarity[min(key, other), max(key, other)] for other in looked[key]}
        assert set(others) <= scored.keys()
        assert len(others) == min(K, len(scored))
        assert scores == pytest.approx(sorted(scored.values(), reverse=True)[:K])


def looked_into(archive: Embeddings, wanted: object, probes: int, most: int) -> dict[int, set[int]]:
    """Whom each question is compared with, from 8 lists made without a run."""
    archive = archive.take(~archive.is_empty)
    rule = rule_of(wanted.measure)
    result = {}
    sites = archive.keys >> ID_BITS if wanted.settings.scope == "site" else np.zeros(len(archive.keys))
    for site in np.unique(sites):
        group = archive.take(sites == site)
        sample = group.take(np.argsort(unit_hashes(group.keys)))
        middle = centroids(side_of(sample, rule), rule, 8)
        chosen = nearest_lists(side_of(group, rule), middle, probes)
        has_word = group.words.toarray() > 0
        has_word[:, has_word.sum(axis=0) > most] = False
        for key, row, words in zip(group.keys.tolist(), chosen, has_word, strict=True):
            is_asked, asks = np.isin(chosen[:, 0], row), (chosen == row[0]).any(axis=1)
            shares = (has_word & words).any(axis=1)
            result[key] = set(group.keys[is_asked | asks | shares].tolist()) - {key}
    return result


@pytest.mark.parametrize(("rows", "shards", "words"), [(30, 1, 0), (1000, 3, 0), (30, 3, 25)])
def test_what_is_found_does_not_depend_on_blocks_or_shards(
    rows: int, shards: int, words: int, tmp_path: Path, choose: Choose
) -> None:
    choose(lists=12, probes=2, words=words, sample=40)
    archive = made_up([150, 80, 20], seed=3)
    one, told = search(archive, tmp_path / "one", search_request(method="ivf", block_rows=71))
    two, also = search(archive, tmp_path / "two", search_request(method="ivf", block_rows=rows), shards)
    assert lists(one) == lists(two)
    assert directed(one) == directed(two)
    assert told.counts == also.counts
    assert told.counts[FOUND] < told.counts[EXACT]


def clustered(count: int) -> Embeddings:
    """Questions of one site in clusters that overlap."""
    generator = np.random.default_rng(1)
    middle = generator.normal(size=(60, 16))
    vectors = middle[generator.integers(0, 60, count)] + generator.normal(size=(count, 16)) * 0.35
    return Embeddings(np.arange(count) * 7, vectors.astype(np.float16))


def test_more_probes_find_more_of_the_neighbours(tmp_path: Path, choose: Choose) -> None:
    recalls = []
    for probes in (1, 4, 16):
        choose(lists=40, probes=probes, sample=400)
        _, report = search(clustered(2000), tmp_path / str(probes), search_request(COSINE, method="ivf"))
        recalls.append(report.counts[FOUND] / report.counts[EXACT])
    assert 0.5 < recalls[0] < 0.99
    assert recalls[0] < recalls[1] <= recalls[2]
    assert recalls[2] > 0.99


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_as_many_lists_are_probed_as_the_recall_takes(
    share: float, tmp_path: Path, capsys: pytest.CaptureFixture, choose: Choose
) -> None:
    choose(lists=40, sample=500)
    wanted = search_request(COSINE, method="ivf", ivf_recall=share)
    _, report = search(clustered(2000), tmp_path, wanted)
    found = report.counts[FOUND] / report.counts[EXACT]
    assert share - 0.03 < found < 1
    probes = int(re.search(r"searched for in (\d+) of 40 lists", capsys.readouterr().out).group(1))
    assert 1 <= probes < 20
    choose(lists=40, probes=max(1, probes - 1), sample=500)
    _, report = search(clustered(2000), tmp_path / "fewer", wanted)
    assert probes == 1 or report.counts[FOUND] / report.counts[EXACT] < found


def test_words_take_the_place_of_probes_where_they_find_more(
    tmp_path: Path, capsys: pytest.CaptureFixture, choose: Choose
) -> None:
    """Vectors at random, and two rare words in each question: its neighbours share one, and may be in any list."""
    choose(lists=50, sample=1200)
    generator = np.random.default_rng(3)
    rare = sparse.csr_array((np.ones(6000, np.float32), generator.integers(0, 300, 6000), np.arange(0, 6001, 2)))
    vectors = generator.normal(size=(3000, 16)).astype(np.float16)
    archive = Embeddings(np.arange(3000) * 7, vectors, sparse.csr_array(rare))
    wanted = search_request(Measure("cosine", 0.3, 1.0), method="ivf", block_rows=700)
    _, report = search(archive, tmp_path, wanted)
    assert report.counts[FOUND] >= 0.93 * report.counts[EXACT]
    told = re.search(r"in (\d+) of 50 lists, and by its words that at most (\d+) questions", capsys.readouterr().out)
    assert int(told.group(1)) <= 2
    assert 10 < int(told.group(2)) < 60


@pytest.mark.parametrize(("scope", "share"), [("all", 1.0), ("site", 250 / 253)])
def test_where_the_recall_takes_too_many_lists_the_search_is_exact(
    scope: str,
    share: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    choose: Choose,
) -> None:
    """With scope=site of the sites where it does: one has three questions, so no more lists than that."""
    monkeypatch.setattr("dupq.stages.neighbours.probes._FEW", 4)
    choose(lists=7, sample=100)
    archive = made_up([160, 3, 90], seed=2)
    common = {"scope": scope, "block_rows": 37}
    exact, whole = search(archive, tmp_path / "exact", search_request(**common))
    asked = search_request(**common, method="ivf", ivf_recall=1)
    files, made = write(archive, tmp_path / "ivf", SITES)
    report = find_neighbours(files, made, asked)
    assert "it is searched exactly, which is as fast" in capsys.readouterr().out
    assert report.counts[EXACTLY] == round(share * 253)
    assert report.counts[FOUND] == report.counts[EXACT] > 100
    assert report.rows_out == whole.rows_out
    before = contents(files)
    for file in storage.list_files(files.nearest, ".parquet")[::2]:
        storage.delete(file.uri)  # killed before all was written
    again = find_neighbours(files, made, asked)
    assert again.counts == report.counts
    assert contents(files) == before
    find_beyond_lists(files, asked, FLOOR)
    assert lists(files) == lists(exact)
    assert directed(files) == directed(exact)
    assert [file.relative for file in storage.list_files(files.nearest) if "block" in file.relative]


def test_an_archive_without_questions_has_no_neighbours(tmp_path: Path) -> None:
    files, report = search(made_up([0, 0, 0]), tmp_path, search_request(method="ivf"))
    assert lists(files) == directed(files) == {}
    assert report.rows_out == 0
    assert report.counts.get(EXACT, 0) == 0


@pytest.mark.parametrize("counts", [[1, 0, 0], [3, 1, 2]])
def test_fewer_questions_than_lists_are_no_harm(counts: list[int], tmp_path: Path, choose: Choose) -> None:
    choose(lists=50, probes=100)
    archive = made_up(counts, seed=1)
    wanted = search_request(method="ivf", scope="site")
    files, _ = search(archive, tmp_path, wanted)
    assert {key: row[0] for key, row in lists(files).items()} == slowly(archive, wanted)[0]


def test_questions_without_an_embedding_are_in_no_list(tmp_path: Path) -> None:
    archive = made_up([20, 0, 0])
    nothing = Embeddings(archive.keys, np.zeros_like(archive.vectors), archive.words[:, :0])
    files, report = search(nothing, tmp_path, search_request(method="ivf", block_rows=7))
    assert lists(files) == directed(files) == {}
    assert report.rows_out == 0


def test_only_chosen_sites_are_searched(tmp_path: Path, choose: Choose) -> None:
    choose(probes=999)
    archive = made_up([50, 60, 40])
    wanted = search_request(only=SITES[::2], method="ivf", block_rows=30)
    files, _ = search(archive, tmp_path, wanted)
    chosen = archive.take(archive.keys >> ID_BITS != 1)
    assert {key: row[0] for key, row in lists(files).items()} == slowly(chosen, search_request())[0]


def test_nothing_is_built_upon_an_approximate_search(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    archive = made_up([90, 0, 0])
    before, _ = search(archive, tmp_path / "before", search_request(method="ivf"))
    full, _ = search(archive, tmp_path / "full", search_request())
    files, made = write(archive, tmp_path / "since", SITES)
    find_neighbours_since(files, made, search_request(), before)
    assert "another method" in capsys.readouterr().out
    assert lists(files) == lists(full)
    for number, earlier in enumerate((before, full)):
        files, made = write(archive, tmp_path / f"ivf{number}", SITES)
        approximately = search_request(method="ivf")
        find_neighbours_since(files, made, approximately, earlier)
        find_beyond_lists(files, approximately, FLOOR)
        assert "neighbours.method=ivf builds on no earlier run" in capsys.readouterr().out
        assert contents(files) == contents(before)


def test_a_search_that_is_killed_is_finished_to_the_same_bytes(tmp_path: Path) -> None:
    import pickle

    archive, wanted = (
        made_up([1200, 0, 0], seed=9),
        search_request(block_rows=150, method="ivf"),
    )
    undisturbed, whole = search(archive, tmp_path / "one", wanted)
    files, made = write(archive, tmp_path / "two", SITES)
    (tmp_path / "call").write_bytes(pickle.dumps((files, made, wanted)))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "call")]
    # what each step writes last; a file before it may be of a task that was killed, and is made again
    marks = "measured/*.parquet", "centres/*.parquet", "members/*.arrow", "group-*/left.parquet"
    job = subprocess.Popen(command, start_new_session=True)
    while job.poll() is None and len(list(Path(files.tiles).glob(marks[-1]))) < 5:
        time.sleep(0.02)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    kept = {path: path.stat().st_mtime_ns for glob in marks for path in Path(files.tiles).glob(glob)}
    assert len(kept) > 20
    report = find_neighbours(files, made, wanted)
    assert all(path.stat().st_mtime_ns == made_at for path, made_at in kept.items())
    find_beyond_lists(files, wanted, FLOOR)
    assert contents(files) == contents(undisturbed)
    assert report.counts == whole.counts
    again = find_neighbours(files, made, wanted)
    assert again.counts == whole.counts


def test_lists_do_not_depend_on_other_queries() -> None:
    """Not on rows beside a question, nor on the order of sums: all sums are of whole numbers that float32 holds."""
    archive = clustered(1500)
    for kind in ("cosine", "euclidean"):
        rule = rule_of(Measure(kind))
        side = side_of(archive, rule)
        middle = centroids(side, rule, 30)
        whole = nearest_lists(side, middle, 6)
        backwards = middle._replace(points=np.ascontiguousarray(middle.points[:, ::-1]))
        turned = side_of(archive._replace(vectors=archive.vectors[:, ::-1]), rule)
        assert (nearest_lists(turned, backwards, 6) == whole).all()
        for rows in (slice(0, 1), slice(700, 1040)):
            assert (nearest_lists(side_of(archive.take(rows), rule), middle, 6) == whole[rows]).all()
        for place in range(6):
            assert (nearer_lists(side, middle, whole[:, place]) == place).all()
        distances = ((scaled(side.vectors, middle.longest)[:, None] - middle.points) ** 2).sum(axis=2)
        assert (whole == np.argsort(distances, axis=1, kind="stable")[:, :6]).all()


def test_there_are_as_many_lists_as_blocks(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The root of 30 is 5, and there are 8 blocks."""
    files, made = write(clustered(30), tmp_path, SITES, shards=1)
    find_neighbours(files, made, search_request(COSINE, method="ivf", block_rows=4))
    assert len(read_centroids(files, range(8)).points) == 8
    assert "8 lists, as there are so many blocks" in capsys.readouterr().out


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 12))
def test_spans_of_lists_hold_about_as_many_questions(sizes: list[int], count: int) -> None:
    made = spans(np.array(sizes), count)
    assert [number for first, stop in made for number in range(first, stop)] == list(range(len(sizes)))
    assert len(made) <= count
    room = sum(max(1, size) for size in sizes) / count + max(1, *sizes, 1)
    assert all(first < stop and sum(sizes[first:stop]) <= room for first, stop in made)


def scaled(vectors: np.ndarray, longest: float) -> np.ndarray:
    lengths = np.maximum(np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1)), longest)
    return np.rint(vectors * (2048 / lengths).astype(np.float32)[:, None]).astype(np.float64)


def test_the_manifest_tells_the_recall(tmp_path: Path, choose: Choose) -> None:
    choose(probes=1)
    assignments = ["neighbours.method=ivf", f"neighbours.k={K}"]
    settings = config.assign(Settings(), assignments)
    run = writer.open_run(str(tmp_path), {}, "a test", settings, {})
    files, made = write(made_up([200, 0, 0]), Path(run.uri), SITES)
    wanted = SearchRequest(SITES, settings.neighbours, MIX, 2)
    run.stage("neighbours", lambda: find_neighbours(files, made, wanted))
    run.describe()
    told = storage.read_json(run.path("manifest.json"))["stages"][0]["counts"]
    assert told[SAMPLED] == len(lists(files)) > 150
    assert 0 < told[FOUND] < told[EXACT] == settings.neighbours.k * told[SAMPLED]


def test_nothing_but_the_tables_is_written(tmp_path: Path) -> None:
    files, _ = search(made_up([60, 0, 0]), tmp_path, search_request(method="ivf", block_rows=20))
    storage.delete_folder(files.tiles)
    names = {path.name for path in (tmp_path / "work" / "neighbours").glob("[!_]*")}
    assert names == {"plan.json", "asked.json", "nearest", "directed"}
