"""A run's clusters beside its known duplicates, against loops over a small run written by hand."""

import math
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from run_tables import Question, key_of, on
from scipy.stats import beta

from dupq.encoders.saved import PARTS
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import DIFFERENT, SAME
from dupq.stages.measures.links import link_quality, links_to_measure, pairs_of_linked
from dupq.stages.measures.of_run import checked_by
from dupq.stages.worklist import TITLES, titles_of
from dupq.tables import KEY_PAIRS, KEYS, LABELS, PAIRS, REPRESENTATIVES
from dupq.text.keys import Sites

A, B = "a.example.com", "b.example.com"
SITES = Sites([A, B])
ABSENT = 99  # a question that links name and no table has
LINKED_SHARE, THRESHOLDS = 0.25, [{"precision": 0.5, "threshold": 0.4}, {"precision": 0.9, "threshold": 1}]

Pair = tuple[Question, Question]


class Run(NamedTuple):
    """What the links of a run's sites, its encoder and its tables hold."""

    questions: dict[Question, str]  # titles
    links: list[tuple[str, int, int]]
    parts: dict[Question, str]
    groups: list[list[Question]]
    pairs: dict[Pair, tuple[str, float]]  # source and probability
    copies: dict[Question, Question] = {}  # noqa: RUF012


def measure(run: Run) -> dict[str, Any] | None:
    """What the steps make of a run's tables, each in several partitions."""
    texts = [pa.table([[key_of(SITES, one) for one in list(run.questions)[half::2]]], schema=KEYS) for half in (0, 1)]
    links = {tuple(sorted(key_of(SITES, (site, one)) for one in ends)) for site, *ends in run.links}
    seen = {part: keys_of([one for one, own in run.parts.items() if own == part]) for part in PARTS}
    found = links_to_measure(iter(texts), pairs_table(links), seen)
    if not len(found.table):
        return None
    copies = [{"key": key_of(SITES, one), "representative": key_of(SITES, other)} for one, other in run.copies.items()]
    representatives = pa.Table.from_pylist(copies, REPRESENTATIVES)
    rows = [
        {
            **dict(zip(PAIRS.names[:4], (*left, *right), strict=True)),
            "source": source,
            "probability": p,
            "rank": rank(source, p),
            "joined": False,
        }
        for (left, right), (source, p) in run.pairs.items()
    ]
    pairs = [pa.Table.from_pylist(rows[third::3], PAIRS) for third in range(3)]
    near = [pairs_of_linked(some, found.second, found.table, representatives, SITES.names) for some in pairs]
    said = [titles_of(batches_of(run, site), found.table) for site in SITES.names]
    groups = [[key_of(SITES, one) for one in group] for group in run.groups]
    members = sorted((key, min(group)) for group in groups for key in group)
    owners = pa.Table.from_pylist([{"key": key, "cluster": name} for key, name in members], LABELS)
    tables = found.table, representatives, found.second, pa.concat_tables(near), pa.concat_tables(said), owners
    return link_quality(*tables, THRESHOLDS, LINKED_SHARE, SITES.names)


def keys_of(questions: list[Question]) -> np.ndarray:
    return np.array([key_of(SITES, one) for one in questions], np.int64)


def pairs_table(pairs: set[tuple[int, ...]]) -> pa.Table:
    """Links as they are read: none of a question with itself."""
    return pa.Table.from_pylist([{"left": a, "right": b} for a, b in sorted(pairs) if a != b], KEY_PAIRS)


def batches_of(run: Run, site: str) -> Iterator[pa.RecordBatch]:
    """The questions of a shard, three at once."""
    rows = [{"key": key_of(SITES, one), "title": title} for one, title in run.questions.items() if one[0] == site]
    yield from pa.Table.from_pylist([{**row, "tags": []} for row in rows], TITLES).to_batches(3)


def rank(source: str, p: float) -> int | None:
    """The rank that a pair has here: the likelier, the better; some pairs are in no list."""
    return 1 + int(12 * (1 - p)) if source == "encoder" and p > 0.1 else None


def sets_of(run: Run) -> list[set[Question]]:
    """The known duplicates that are there."""
    found: list[set[Question]] = []
    for site, one, other in run.links:
        link = {(site, one), (site, other)}
        if len(link) == 2 and link <= run.questions.keys():
            touched = [some for some in found if some & link]
            found = [some for some in found if some not in touched] + [link.union(*touched)]
    return found


def sets_of_test(run: Run) -> list[set[Question]]:
    """Those with a question of the encoder's test part and none of another; every set here has one."""
    return [some for some in sets_of(run) if {run.parts[one] for one in some if one in run.parts} == {"test"}]


def links_of_test(run: Run) -> set[Pair]:
    inside = set().union(*sets_of_test(run))
    ends = {tuple(sorted([(site, one), (site, other)])) for site, one, other in run.links}
    return {(one, other) for one, other in ends if {one, other} <= inside and one != other}


def together(run: Run, pair: Pair) -> bool:
    return any({*pair} <= set(group) for group in run.groups)


def is_known(run: Run, pair: Pair) -> bool:
    return any({*pair} <= some for some in sets_of_test(run))


def encoders_pairs(run: Run) -> dict[Pair, float]:
    return {pair: float(np.float32(p)) for pair, (source, p) in run.pairs.items() if source == "encoder"}


def mean(values: list[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def random_run(seed: int) -> Run:
    """Forty questions of two sites; sets of two to four of them are linked in a chain, some clusters are half right."""
    random = np.random.default_rng(seed)
    everyone = [(site, number) for site in (A, B) for number in range(1, 21)]
    words = random.integers(1, 15, len(everyone)).tolist()
    questions = {one: " ".join(["word"] * n) for one, n in zip(everyone, words, strict=True)}
    links, parts = [], {}
    for site in (A, B):
        order, start = random.permutation(np.arange(1, 21)).tolist(), 0
        for size in (2, 3, 4, 2, 3, 2):
            chosen, start = order[start : start + size], start + size
            links += [(site, one, other) for one, other in pairwise(chosen)]
            part = random.choice(["train", "development", "test", "test", "test"])
            parts[site, chosen[0]] = str(part)
        links += [(site, order[0], ABSENT), (site, ABSENT, order[-1]), (site, order[1], order[1])]
    places = random.integers(0, 18, len(everyone))
    for site, one, other in links[::2]:  # every other link is in one cluster, as far as no later one moves it
        if ABSENT not in (one, other):
            places[everyone.index((site, one))] = places[everyone.index((site, other))]
    groups = [[one for one, at in zip(everyone, places, strict=True) if at == place] for place in range(18)]
    pairs = {
        pair: (str(random.choice(["encoder", "encoder", "near_duplicate"])), float(np.float32(random.random())))
        for pair in combinations(everyone, 2)
        if random.random() < 0.3
    }
    return Run(questions, links, parts, [group for group in groups if len(group) > 1], pairs)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_is_measured_on_the_links_of_the_test_part(seed: int) -> None:
    run = random_run(seed)
    found, links, pairs = measure(run), links_of_test(run), encoders_pairs(run)
    assert found["test_links"] == len(links) > 5
    assert found["in_pairs"] == pytest.approx(mean([link in pairs for link in links]))
    ranks = [rank("encoder", pairs.get(link, 0)) or math.inf for link in links]
    assert found["among_nearest"] == {str(n): pytest.approx(mean([one <= n for one in ranks])) for n in (1, 5, 10)}
    assert 0 < found["among_nearest"]["10"] <= found["in_pairs"]
    assert found["in_one_cluster"] == pytest.approx(mean([together(run, link) for link in links]))
    assert 0 < found["in_pairs"] < 1
    assert 0 < found["in_one_cluster"] < 1
    linked = set().union(*sets_of_test(run))
    touching = {pair: p for pair, p in pairs.items() if linked & {*pair}}
    for row, decided in zip(found["thresholds"], THRESHOLDS, strict=True):
        above = {pair for pair, p in touching.items() if p >= np.float32(decided["threshold"])}
        assert row["links_found"] == pytest.approx(mean([link in above for link in links]))
        assert row["lower_bound_precision"] == pytest.approx(mean([is_known(run, pair) for pair in above]))
        assert {name: row[name] for name in decided} == decided
    at = [row["threshold"] for row in found["by_threshold"]]
    assert at == pytest.approx(np.arange(0.1, 1, 0.01))
    shares = [mean([pairs.get(link, -1) >= np.float32(threshold) for link in links]) for threshold in at]
    assert [row["links_found"] for row in found["by_threshold"]] == pytest.approx(shares)
    assert found["calibration"]["share_of_duplicates_linked"] == 0.25
    assert sum(found["calibration"]["pairs"]) == len(touching)
    partners = [(one, other) for group in run.groups for one in group for other in group if one != other]
    expected = mean([is_known(run, pair) for pair in partners if pair[0] in linked])  # a pair of two counts for both
    assert found["lower_bound_precision"] == pytest.approx(expected)
    words = {one: max(first for first in (0, 4, 8, 12) if first <= len(run.questions[one].split())) for one, _ in links}
    for name, label_of in (("by_site", {one: one[0] for one, _ in links}), ("by_title_words", words)):
        of: dict[str, list[bool]] = {}
        for link in links:
            of.setdefault(str(label_of[link[0]]), []).append(together(run, link))
        assert found[name] == {
            label: {"links": len(own), "in_one_cluster": pytest.approx(mean(own))} for label, own in of.items()
        }


def small(groups: list[list[Question]], links: list[tuple[str, int, int]]) -> Run:
    """Of a few questions that the encoder was tested on, without pairs."""
    questions = dict.fromkeys(on(A, 1, 2, 3, 4, 5, 6), "title")
    return Run(questions, links, dict.fromkeys(on(A, *range(1, 7), ABSENT), "test"), groups, {})


def test_a_link_is_looked_up_between_those_that_represent_its_questions() -> None:
    """1 is a copy of 5, so the pair of 5 and 2 is that of the link; 3 and 4 are copies, which the encoder never saw."""
    pair, copies = (A, 2), {(A, 1): (A, 5), (A, 4): (A, 3)}
    run = small([], [(A, 1, 2), (A, 3, 4)])._replace(pairs={(pair, (A, 5)): ("encoder", 0.9)}, copies=copies)
    found = measure(run)
    assert (found["test_links"], found["searched_links"]) == (2, 1)
    assert found["among_nearest"] == {"1": 0.0, "5": 1.0, "10": 1.0}
    assert found["in_pairs"] == 1
    assert [(row["links_found"], row["lower_bound_precision"]) for row in found["thresholds"]] == [(1, 1), (0.5, None)]


def test_without_links_that_the_encoder_was_neither_trained_nor_tuned_on_there_is_no_quality() -> None:
    for links in ([], [(A, 1, ABSENT)], [(A, 1, 1)]):
        assert measure(small([on(A, 1, 2)], links)) is None
    run = small([on(A, 1, 2)], [(A, 1, 2), (A, 3, 4)])
    for part in ("train", "development"):
        assert measure(run._replace(parts=dict.fromkeys(on(A, 1, 3), part))) is None


def test_a_run_without_a_cluster_or_a_pair_finds_nothing() -> None:
    found = measure(small([], [(A, 1, 2)]))
    assert (found["in_pairs"], found["in_one_cluster"], found["lower_bound_precision"]) == (0, 0, None)
    assert [(row["links_found"], row["lower_bound_precision"]) for row in found["thresholds"]] == [(0, None)] * 2


def test_judged_pairs_by_the_encoder_from_the_threshold_on_are_counted() -> None:
    random = np.random.default_rng(5)
    ends = [*combinations(range(1, 25), 2)]
    p, sources = (
        random.random(len(ends)).astype(np.float32),
        random.choice(["encoder", "exact"], len(ends), p=[0.8, 0.2]),
    )
    sides = {"site_left": SITES.names[0], "site_right": SITES.names[0], "joined": True}
    rows = [
        {**sides, "question_id_left": a, "question_id_right": b, "source": source, "probability": x}
        for (a, b), source, x in zip(ends, sources.tolist(), p.tolist(), strict=True)
    ]
    table = pa.Table.from_pylist(rows, PAIRS)
    chosen = random.choice(len(ends), 90, replace=False)
    words = random.choice([SAME, DIFFERENT, -1], 90, p=[0.6, 0.3, 0.1])
    people = Judged(np.array(ends, np.int64)[chosen], words.astype(np.int8))
    counted = [word for row, word in zip(chosen, words, strict=True) if sources[row] == "encoder" and p[row] >= 0.5]
    same, different = counted.count(SAME), counted.count(DIFFERENT)
    found = checked_by(iter([table.slice(0, 100), table.slice(100)]), 0.5, SITES, people)
    assert (found["pairs"], found["right"]) == (same + different, same)
    assert found["least"] == pytest.approx(beta.ppf(0.05, same, different + 1))
