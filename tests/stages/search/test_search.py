"""What is new since an earlier run, searched; the answer is that of a whole search."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse
from searched import (
    FLOOR,
    MIX,
    SITES,
    beyond,
    lists,
    made_up,
    recorded,
    results,
    search,
    search_request,
    searched,
    slowly,
    write,
)

from dupq import storage
from dupq.job.table import Table
from dupq.neighbours.candidates import Nearest, nearest_table
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.stages.search.search import EarlierLists, SiteLists, earlier_lists, find_changes
from dupq.tables import KEYS, NEAREST
from dupq.text.keys import ID_BITS


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
    for night in (1, 2):
        archive = changed(archive, generator, night)
        wanted = search_request(scope=scope, block_rows=[0, 130, 200][night])
        full, whole = search(archive, tmp_path / f"full{night}", wanted)
        files, made = write(archive, tmp_path / f"night{night}", SITES, shards=night)
        report = recorded(files, made, wanted, before)
        beyond(files, wanted, FLOOR)
        assert 0 < report.counts["questions searched"] < 0.3 * len(archive.keys)
        assert results(files) == results(full)
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
    report = searched(files, made, search_request(block_rows=64), before)
    beyond(files, search_request(block_rows=64), FLOOR)
    assert report.counts["questions searched"] < 60
    assert results(files) == results(full)
    after, _ = search(old, tmp_path / "gone", search_request(sites=SITES[1:2]))
    files, made = write(old, tmp_path / "less", SITES[1:2])
    searched(files, made, search_request(sites=SITES[1:2]), full)
    assert lists(files) == lists(after)


def written(folder: Path, *tables: dict[int, list[int]]) -> Table:
    """Lists by question; the score of a neighbour is minus its key."""
    lists = Table(str(folder), NEAREST, len(tables))
    for number, table in enumerate(tables):
        keys, others = np.array(list(table)), np.array([[*some, *[-1] * (2 - len(some))] for some in table.values()])
        scores = np.where(others < 0, -np.inf, -others.astype(float))
        storage.write_table(lists.file(number), nearest_table(keys, Nearest(others, scores)), NEAREST)
    return lists


def test_of_the_earlier_lists_a_block_reads_only_files_that_may_have_some_of_its_own(tmp_path: Path) -> None:
    """Also where keys have moved: the earlier run had a site in front."""
    b = 1 << ID_BITS
    lists = written(tmp_path, {5: [7], 7: [5]}, {b | 1: [b | 4, b | 2], b | 2: [b | 1]}, {b | 4: [b | 1], b | 9: []})
    for number in (0, 3):
        Path(lists.file(number)).write_bytes(b"not to be read")
    spans = ((5, 7), *((b | low, b | high) for low, high in [(1, 2), (4, 9), (10, 12)]))
    earlier = EarlierLists(replace(lists, partitions=4), spans, SiteLists(["a", "b"], ["b"], ()))
    own, searched_again = (pa.table([keys], schema=KEYS) for keys in ([1, 2, 4], [2]))
    found = earlier_lists(own, searched_again, earlier, 2)
    assert found["key"].to_pylist() == [1, 4]
    assert found["neighbours"].to_pylist() == [[4, 2], [1]]
    assert found["scores"].to_pylist() == [[-4.0 - b, -2.0 - b], [-1.0 - b]]


def test_searched_again_is_what_is_new_or_changed_and_what_lost_a_neighbour() -> None:
    def marks(rows: dict[int, int]) -> pa.Table:
        return pa.table({"site": ["a"] * len(rows), "question_id": list(rows), "fingerprint": list(rows.values())})

    then, now = {1: 11, 2: 12, 3: 13, 4: 14, 5: 15}, {1: 11, 2: 22, 4: 14, 5: 15, 8: 18, 9: 0}
    others = {1: [4], 2: [1], 3: [1], 4: [3], 5: [1]}
    lists = pa.Table.from_pylist([{"key": a, "neighbours": b, "scores": [0.5]} for a, b in others.items()], NEAREST)
    sites = SiteLists(["a"], ["a"], ())
    found = find_changes(iter([marks(now)]), iter([marks(then)]), iter([lists]), sites, 1)
    assert found.table.to_pydict() == {"key": [2, 4, 8]}
    assert [*found.counts.values()] == [2, 2, 3]


@pytest.mark.parametrize(
    ("measure", "said"),
    [(Measure(), "another measure"), (MIX, "has lost some of its results")],
    ids=["measure", "lost"],
)
def test_an_earlier_run_by_another_measure_or_that_lost_a_file_is_not_believed(
    measure: Measure, said: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    archive = made_up([90, 0, 0])
    before, _ = search(archive, tmp_path / "before", search_request())
    if measure == MIX:
        Path(storage.list_files(before.nearest, ".parquet")[0].uri).unlink()
    files, made = write(archive, tmp_path / "since", SITES)
    searched(files, made, search_request(measure), before)
    assert said in capsys.readouterr().out
    assert {key: row[0] for key, row in lists(files).items()} == slowly(archive, search_request(measure))[0]


@pytest.mark.parametrize("is_lost_first", [True, False])
def test_an_attempt_that_goes_another_way_believes_no_list_of_the_one_before(
    is_lost_first: bool, tmp_path: Path
) -> None:
    """The earlier run cannot be used in one of two attempts."""
    archive, wanted = made_up([150, 40, 0], seed=7), search_request(block_rows=80)
    then = archive.take(np.arange(len(archive.keys)) % 40 != 0)
    before, _ = search(then, tmp_path / "before", wanted)
    full, _ = search(archive, tmp_path / "full", wanted)
    files, made = write(archive, tmp_path / "since", SITES)
    record = Path(before.uri) / "stages" / "neighbours.json"
    for is_lost in (is_lost_first, not is_lost_first):
        kept = record.read_bytes()
        if is_lost:
            record.unlink()
        report = searched(files, made, wanted, before)
        assert ("questions searched" in report.counts) != is_lost
        record.write_bytes(kept)
        if is_lost == is_lost_first:  # killed before it had written all lists
            sorted(Path(files.nearest).glob("part-*"))[-1].unlink()
    beyond(files, wanted, FLOOR)
    assert results(files) == results(full)
