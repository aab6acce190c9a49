"""Questions that may be compared, by slow twins: lists, near duplicates, and what represents others."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from searched import FLOOR, PARTS, SITES, beyond, directed, lists, made_up, recorded, search_request, slowly, write
from test_near_steps import find, untitled

from dupq import storage
from dupq.job.table import Table
from dupq.neighbours.scopes import entries_of
from dupq.settings.sections import NeighbourSettings
from dupq.stages.clusters import pairs_within
from dupq.stages.scopes import Scopes, scopes_of
from dupq.tables import GROUPED, QUESTIONS, SCOPES, SCORED

Owned = dict[int, list[tuple[int, int]]]  # the entries of each question


def drawn(keys: np.ndarray, seed: int, values: int, days: int) -> Owned:
    """Up to three values of each question, which has one time; a few have none."""
    generator = np.random.default_rng(seed)
    times = generator.integers(0, days + 1, len(keys))
    of = [sorted(set(generator.integers(0, values, generator.integers(0, 4)).tolist())) for _ in keys]
    return {
        key: [(value, time) for value in own] for key, own, time in zip(keys.tolist(), of, times.tolist(), strict=True)
    }


def table_of(owned: Owned, keys: list[int]) -> pa.Table:
    rows = [(key, [v for v, _ in owned[key]], [t for _, t in owned[key]]) for key in keys]
    return pa.Table.from_pylist([dict(zip(SCOPES.names, row, strict=True)) for row in rows], SCOPES)


def may_be_compared(left: list[tuple[int, int]], right: list[tuple[int, int]], window: int) -> bool:
    return any(a == b and abs(s - t) <= window for a, s in left for b, t in right)


def are_near(owned: Owned, window: int, left: int, right: int) -> bool:
    return may_be_compared(owned[left], owned[right], window)


def scoped(folder: Path, owned: Owned, keys: list[list[int]], groups: dict[int, int], window: int) -> Scopes:
    """Scopes of the questions of each shard, and of groups by their representatives."""
    table = Table(str(folder / "scopes"), SCOPES, len(keys))
    for number, of_shard in enumerate(keys):
        storage.write_table(table.file(number), table_of(owned, of_shard), SCOPES)
    grouped = Table(str(folder / "grouped"), GROUPED, 1)
    owners = pa.array([groups[key] for key in sorted(groups)], pa.int64())
    rows = table_of(owned, sorted(groups)).append_column("representative", owners)
    storage.write_table(grouped.file(0), rows.cast(GROUPED), GROUPED)
    return Scopes(table, window, grouped)


@pytest.mark.parametrize(("values", "days", "window", "rows"), [(4, 0, 0, 57), (12, 90, 20, 1000), (1, 90, 7, 64)])
def test_lists_hold_the_nearest_that_may_be_compared_night_after_night(
    values: int, days: int, window: int, rows: int, tmp_path: Path
) -> None:
    """A question that represents others is compared with all that these may be compared with."""
    whole, before = made_up([180, 70, 30], seed=values), None
    owned, generator = drawn(whole.keys, values, values, days), np.random.default_rng(1)
    for night, size in enumerate((250, len(whole.keys))):
        archive = whole.take(np.sort(generator.permutation(len(whole.keys))[:size]))
        groups = {int(key): int(archive.keys[0]) for key in archive.keys[:6]}
        kept = archive.take(~np.isin(archive.keys, [*groups][1:]))
        files, shards = write(kept, tmp_path / str(night), SITES)
        keys = [archive.keys[archive.keys >> 48 == SITES.index(shard.site)].tolist() for shard in shards]
        scopes = scoped(tmp_path / f"scopes{night}", owned, keys, groups, window)
        wanted = search_request(block_rows=rows)
        wanted = type(wanted)(**{**vars(wanted), "scopes": scopes})
        report = recorded(files, shards, wanted, before)
        beyond(files, wanted, FLOOR)
        union = owned | {owner: [entry for key in groups for entry in owned[key]] for owner in set(groups.values())}
        expected, above = slowly(kept, wanted, FLOOR, partial(are_near, union, window))
        assert {key: others for key, (others, _) in lists(files).items() if others} == {
            key: others for key, others in expected.items() if others
        }
        listed = {(min(a, b), max(a, b)) for a, others in expected.items() for b in others}
        assert directed(files).keys() == listed | above.keys()
        before = files
        if night:
            assert 0 < report.counts["questions searched"] < len(kept.keys)
        owned[int(kept.keys[-1])] = [(0, 0)]  # another scope: a changed question


def edits(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Copies and edits of five texts, and which text each is one of."""
    generator = np.random.default_rng(seed)
    words = [[f"{'abcde'[text]}{number}" for number in range(60)] for text in range(5)]
    of = generator.integers(0, 5, count).tolist()
    return [" ".join(words[text][: 60 - int(generator.integers(0, 2))]) for text in of], [str(text) for text in of]


@pytest.mark.parametrize(("values", "days", "window"), [(6, 0, 0), (3, 300, 9), (1, 300, 4)])
def test_near_duplicates_are_connected_as_by_all_allowed_pairs(
    values: int, days: int, window: int, tmp_path: Path
) -> None:
    """No copy hides another from its own scope or time."""
    keys = list(range(100, 190))
    texts, of = edits(len(keys), values)
    owned = drawn(np.array(keys), values + 1, values, days)
    table, scopes = untitled(pa.array(keys), pa.array(texts)), scoped(tmp_path, owned, [keys], {}, window)
    found = find(table, tmp_path, 1, PARTS, scopes=scopes)
    assert all(may_be_compared(owned[a], owned[b], window) for a, b in found.pairs)
    graph = nx.Graph()
    for i, a in enumerate(keys):
        for j in range(i):
            if of[i] == of[j] and may_be_compared(owned[a], owned[keys[j]], window):
                graph.add_edge(a, keys[j])
    assert {key: min(nodes) for nodes in nx.connected_components(graph) for key in nodes} == found.representatives


def test_a_pair_is_shown_by_questions_that_may_be_compared() -> None:
    """1 represents 2, with which alone 3 shares a value: the pair is 2 and 3. 1 and 4 share one."""
    grouped = pa.Table.from_pylist(
        [
            {"key": 1, "values": [5], "times": [0], "representative": 1},
            {"key": 2, "values": [4, 5], "times": [0, 0], "representative": 1},
            {"key": 8, "values": [9], "times": [0], "representative": 7},
            {"key": 7, "values": [], "times": [], "representative": 7},
        ],
        GROUPED,
    )
    scopes = table_of({1: [(5, 0)], 3: [(4, 0)], 4: [(5, 0)], 7: [], 5: [(9, 1)]}, [1, 3, 4, 5, 7])
    row = dict.fromkeys(SCORED.names, 0.5) | {"rank_left": 1, "rank_right": 2}
    scored = pa.Table.from_pylist([row | {"left": a, "right": b} for a, b in [(1, 3), (1, 4), (5, 7)]], SCORED)
    found = pairs_within(scored, scopes, grouped, 1).select(["left", "right", "rank_left"]).to_pylist()
    assert [tuple(row.values()) for row in found] == [(2, 3, 1), (1, 4, 1), (5, 8, 1)]
    assert entries_of(scopes, grouped).owners.tolist() == [2, 1, 2, 3, 4, 5, 8]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"scope": "tags"}, [["a", "b"], ["a"], [], []]),
        ({"scope": "owner"}, [["x/7"], ["y/7"], ["x/7"], []]),
        ({"scope": "column"}, [["web"], [], ["app", "web"], []]),
        ({"window": 3}, [[""], [""], [""], []]),
        ({"scope": "tags", "window": 3}, [["a", "b"], ["a"], [], []]),
    ],
)
def test_entries_are_the_values_of_the_column_at_the_time(settings: dict, found: list[list]) -> None:
    """A question without a value has none, nor in a window one without a date."""
    days = [1, 2, 9, None]
    dates = pa.array([day and day * 86_400_000 for day in days], pa.int64())
    rows = {
        "key": pa.array([1, 2, 3, 4]),
        "site": pa.array(["x", "y", "x", "x"]),
        "tags": pa.array([["a", "b"], ["a"], [], ["a"] if "window" in settings else []], pa.list_(pa.string())),
        "owner": pa.array(["7", "7", "7", None]),
        "scope": pa.array([["web"], None, ["web", "app"], []], pa.list_(pa.string())),
        "creation_date": dates.cast(QUESTIONS.field("creation_date").type),
    }
    batches: Iterator[pa.RecordBatch] = iter([pa.record_batch(rows)])
    made = scopes_of.function(batches, NeighbourSettings(**settings)).table.to_pylist()
    hashed = [[xxhash.xxh3_64_intdigest(value.encode()) if value else 0 for value in values] for values in found]
    assert [sorted(value % (1 << 64) for value in row["values"]) for row in made] == [*map(sorted, hashed)]
    times = [(day or 0) * 86_400_000 * ("window" in settings) for day in days]
    assert [row["times"] for row in made] == [[time] * len(own) for time, own in zip(times, found, strict=True)]
