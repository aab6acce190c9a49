"""From the partition to the tables that people read: stable ids and changes."""

from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import fabricated_run
import numpy as np
import pyarrow as pa
import pytest
from run_tables import Question, by_home, key_of, on, question_row, scored_pairs, table, write_rows

from dupq import storage
from dupq.archive import Shard
from dupq.clusters import identity
from dupq.evaluation.sampling import read_verdicts
from dupq.job.run import Run
from dupq.job.table import Shards, Table
from dupq.stages import clusters as stage
from dupq.stages.clusters import PartitionResult, make_clusters
from dupq.stages.measures.of_run import changed_since
from dupq.stages.partition import RunKnowledge
from dupq.tables import (
    CHANGED_CLUSTERS,
    CLUSTER_STATS,
    CLUSTERS,
    JOINED_PAIRS,
    LABELS,
    PAIRS,
    QUESTIONS,
    REPRESENTATIVES,
    TEXTS,
    VERIFIED,
)
from dupq.text.keys import Sites

A, B, C = "a.example.com", "b.example.com", "c.example.com"
PARTS, THRESHOLD = 2, 0.7

Groups = list[list[Question]]


class Night(NamedTuple):
    """The questions of an archive, the clusters of representatives, and copies by their representative."""

    questions: list[Question]
    groups: Groups
    copies: dict[Question, Question] = {}  # noqa: RUF012


class Tables(NamedTuple):
    clusters: list[dict[str, Any]]
    stats: dict[str, dict[str, Any]]
    changes: list[tuple]
    pairs: list[dict[str, Any]]

    def groups(self) -> dict[str, set[Question]]:
        found = defaultdict(set)
        for row in self.clusters:
            found[row["cluster_id"]].add((row["site"], row["question_id"]))
        return dict(found)

    def ids(self) -> dict[str, set[Question]]:
        return {name: group for name, group in self.groups().items() if len(group) > 1}


def make(night: Night, folder: Path, previous: Path | None = None, parts: int = PARTS) -> Tables:
    """Write what the stage reads, and read what it writes."""
    sites, run = Sites([site for site, _ in night.questions]), str(folder)
    shards = []
    for site in sites.names:
        own = [number for name, number in night.questions if name == site]
        for half in (own[::2], own[1::2]):
            shards.append(write_shard(run, len(shards), site, sorted(half), sites))
    steps, names = Run(run, "clusters"), tuple(sites.names)
    decided, copies = written(run, night, sites, parts)
    storage.write_json(f"{run}/metrics.json", {**fabricated_run.metrics(), "sites": dict.fromkeys(sites.names, 0)})
    texts = Table(f"{run}/texts", TEXTS, len(shards))
    judged, near = read_verdicts(None, sites), representatives(run, copies)
    known = RunKnowledge(sites, None, True, judged, near, {}, previous and str(previous))
    make_clusters(steps, decided, known, texts, Shards(tuple(shards), names, QUESTIONS))
    changed = rows_below(f"{run}/changes", CHANGED_CLUSTERS) if previous else []
    return Tables(
        rows_below(f"{run}/clusters", CLUSTERS),
        {row["cluster_id"]: row for row in rows_below(f"{run}/cluster_stats", CLUSTER_STATS)},
        [tuple(row.values()) for row in changed],
        rows_below(f"{run}/pairs", PAIRS),
    )


def rows_below(folder: str, schema: pa.Schema) -> list[dict[str, Any]]:
    tables = [storage.read_table(file.uri, schema) for file in storage.list_files(folder, ".parquet")]
    return pa.concat_tables(tables).to_pylist()


def write_shard(run: str, number: int, site: str, ids: list[int], sites: Sites) -> Shard:
    shard = Shard(number, f"{run}/questions/site={site}/part-{number}.parquet", site)
    write_rows(shard.uri, [question_row(one, score=-one) for one in ids], QUESTIONS)
    texts = [{"key": key_of(sites, (site, one)), "title": "", "text": ""} for one in ids]
    write_rows(f"{run}/texts/{shard.file}", texts, TEXTS)
    return shard


def written(run: str, night: Night, sites: Sites, parts: int) -> tuple[PartitionResult, dict[int, int]]:
    """Score each pair of questions of a group and verify each copy; return the copies by key too."""
    groups = [sorted(key_of(sites, one) for one in group) for group in night.groups]
    copies = {key_of(sites, one): key_of(sites, other) for one, other in night.copies.items()}
    rows = [{"key": key, "cluster": group[0]} for group in groups for key in group]
    labels = table(f"{run}/labels", LABELS, rows[::2], rows[1::2])
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    scored = scored_pairs(f"{run}/scored", {(a, b): 0.7 + (a * 7 + b) % 13 / 50 for a, b in pairs}, parts)
    verified = [{"left": min(p), "right": max(p), "source": "exact", "jaccard": 1.0} for p in copies.items()]
    near = table(f"{run}/verified", VERIFIED, *by_home(verified, "left", parts))
    joined = table(f"{run}/joined", JOINED_PAIRS, [])
    return PartitionResult(labels, scored, joined, near, THRESHOLD), copies


def representatives(run: str, copies: dict[int, int]) -> Table:
    """`copies` maps keys to their representatives."""
    stand = sorted({**{other: other for other in copies.values()}, **copies}.items())
    return table(f"{run}/near", REPRESENTATIVES, [{"key": key, "representative": other} for key, other in stand])


def questions(*sites: str, count: int = 12) -> list[Question]:
    return [(site, number) for site in sites for number in range(1, count + 1)]


def test_every_question_is_in_one_cluster_that_its_smallest_key_names(tmp_path: Path) -> None:
    night = Night(questions(A, B), [on(A, 3, 2, 7), [(A, 9), (B, 1)], on(B, 5)], {(B, 4): (B, 1), (A, 12): (A, 11)})
    found = make(night, tmp_path)
    assert sorted((row["site"], row["question_id"]) for row in found.clusters) == sorted(night.questions)
    assert found.ids() == {f"{A}/2": {*on(A, 2, 3, 7)}, f"{A}/9": {(A, 9), (B, 1), (B, 4)}, f"{A}/11": {*on(A, 11, 12)}}
    for row in found.clusters:
        group = found.groups()[row["cluster_id"]]
        best = max(group, key=lambda question: (-question[1], question[0] == A))
        assert row["cluster_size"] == len(group)
        assert (row["canonical_site"], row["canonical_id"]) in {one for one in group if one[1] == best[1]}
        assert (row["canonical_reason"] is None) == (len(group) == 1)
    assert {name: row["size"] for name, row in found.stats.items()} == {n: len(g) for n, g in found.ids().items()}
    assert found.stats[f"{A}/9"]["edges"] == 2  # the copy is joined through the question that represents it
    assert all(row["joined"] for row in found.pairs)
    assert found.changes == []


@pytest.mark.parametrize("slices", [1, 3])
def test_spreading_the_pairs_does_not_change_tables(
    slices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone, random = questions(A, B, count=40), np.random.default_rng(slices)
    places = random.integers(0, 25, len(everyone))
    groups = [[one for one, at in zip(everyone, places, strict=True) if at == place] for place in range(25)]
    night = Night(everyone, [group for group in groups if len(group) > 1])
    whole = make(night, tmp_path / "one", parts=1)
    monkeypatch.setattr(stage, "partitions", lambda questions: slices)
    spread = make(night, tmp_path / "five", parts=5)
    assert list(spread.stats.items()) == list(whole.stats.items())
    assert spread.clusters == whole.clusters
    assert sorted(map(str, spread.pairs)) == sorted(map(str, whole.pairs))


FIRST = Night(questions(A, B), [on(A, 1, 2, 3), on(A, 5, 6), on(B, 1, 2, 3, 4), on(B, 8, 9), on(B, 10, 11)])


def test_a_question_that_left_the_cluster_it_names_is_alone(tmp_path: Path) -> None:
    """Its id is not carried on to a third night."""
    make(FIRST, tmp_path / "first")
    found = make(FIRST._replace(groups=[on(A, 2, 3)]), tmp_path / "second", tmp_path / "first")
    assert found.ids() == {f"{A}/1": {*on(A, 2, 3)}}
    assert found.groups()[f"{A}/1~alone"] == {(A, 1)}
    assert found.groups()[f"{A}/5"] == {(A, 5)}
    found = make(FIRST._replace(groups=[on(A, 1, 2, 3)]), tmp_path / "third", tmp_path / "second")
    assert found.ids() == {f"{A}/1": {*on(A, 1, 2, 3)}}
    assert found.changes == [("grown", f"{A}/1", f"{A}/1", 3, 2, 2)]


def test_a_new_site_before_the_others_changes_no_id(tmp_path: Path) -> None:
    make(Night(questions(B, C), [on(B, 2, 3), on(C, 4, 5)]), tmp_path / "first")
    night = Night(questions(A, B, C), [on(B, 1, 2, 3), on(C, 4, 5), on(A, 1, 2)])
    found = make(night, tmp_path / "second", tmp_path / "first")
    assert sorted(found.ids()) == [f"{A}/1", f"{B}/2", f"{C}/4"]
    assert [row[:3] for row in found.changes] == [("new", f"{A}/1", None), ("grown", f"{B}/2", f"{B}/2")]


def test_a_site_that_is_gone_takes_its_questions_and_ids_along(tmp_path: Path) -> None:
    """An id that names a question of it cannot be written, so its cluster gets a new one; other ids stay."""
    make(Night(questions(A, B), [on(A, 1, 2), [(A, 9), *on(B, 5, 6, 7)], on(B, 1, 2)]), tmp_path / "first")
    then = identity.read_clusters(str(tmp_path / "first" / "clusters"), Sites([B]))
    assert [column.tolist() for column in then] == [[1, 2], [1, 1]]
    found = make(Night(questions(B), [on(B, 5, 6), on(B, 1, 2, 3)]), tmp_path / "second", tmp_path / "first")
    assert found.ids() == {f"{B}/5": {*on(B, 5, 6)}, f"{B}/1": {*on(B, 1, 2, 3)}}
    assert found.changes == [
        ("gone", None, f"{A}/1", 0, 2, 0),
        ("grown", f"{B}/1", f"{B}/1", 3, 2, 2),
        ("shrunk", f"{B}/5", f"{A}/9", 2, 4, 2),
    ]
    members = pa.table({"key": [5, 6], "id": [5, 5]})  # of the questions then, none has its id now
    assert changed_since(members, str(tmp_path / "first"), [B]) == {"questions_of_clusters_changed": 1.0}


@pytest.mark.parametrize("seed", range(2))
def test_random_nights_have_the_ids_and_changes_of_their_groupings(seed: int, tmp_path: Path) -> None:
    random, everyone = np.random.default_rng(seed), questions(A, B, count=20)
    sites, before = Sites([A, B]), None
    places = random.integers(0, 12, len(everyone))
    then = identity.Clustering(np.zeros(0, np.int64), np.zeros(0, np.int64))
    for night in range(3):
        members = [[one for one, at in zip(everyone, places, strict=True) if at == place] for place in range(12)]
        groups = [group for group in members if len(group) > 1]
        folder = tmp_path / str(night)
        found = make(Night(everyone, groups), folder, before)
        keys = [[key_of(sites, one) for one in group] for group in groups]
        smallest = np.repeat([min(group) for group in keys], [len(group) for group in keys])
        now = identity.Clustering(np.concatenate(keys), smallest)
        own = identity.cluster_ids(now, then)
        expected = {
            sites.label(key): sites.label(name) for key, name in zip(now.keys.tolist(), own.tolist(), strict=True)
        }
        written = {f"{r['site']}/{r['question_id']}": r["cluster_id"] for r in found.clusters if r["cluster_size"] > 1}
        assert written == expected
        assert found.stats.keys() == set(expected.values())
        after = identity.Clustering(now.keys, own)
        if before is not None:
            changed = [tuple(row.values()) for row in identity.changes(after, then, sites).to_pylist()]
            assert found.changes == changed
        again = identity.read_clusters(f"{folder}/clusters", sites)
        assert dict(zip(*(column.tolist() for column in again), strict=True)) == dict(
            zip(*(column.tolist() for column in after), strict=True)
        )
        places = np.where(random.random(len(everyone)) < 0.25, random.integers(0, 12, len(everyone)), places)
        then, before = after, folder
