"""From neighbours to pairs with a probability, compared with loops over dictionaries; and the threshold."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_evidence import Question, marked, slow_cosine, slow_lead, slow_shared, words_of
from run_tables import Pair, home_of, write_terms

from dupq.clusters.calibration import FEATURES, Model
from dupq.clusters.decision import PairScorer, undirected
from dupq.clusters.evidence import UNLISTED
from dupq.job.run import Run
from dupq.job.table import Broadcast, Shuffled, Streamed, Table, one_batch, write_batches
from dupq.job.tasks import Report
from dupq.stages import pairs as stage
from dupq.stages.pairs import score_pairs
from dupq.stages.partition import thresholds_of
from dupq.stages.terms import TermTables
from dupq.tables import CANDIDATES, NEIGHBOURS
from dupq.text.keys import ID_BITS
from dupq.text.marks import CITED, SELF

FRACTIONS = st.floats(-1, 1, width=32)
KEYS = st.one_of(st.integers(0, 6), st.integers((1 << 48) - 2, (1 << 48) + 4))
Rows = list[dict[str, Any]]


@st.composite
def neighbours(draw: st.DrawFn) -> Rows:
    """Draw rows: each side may list the other, and a pair above the floor may come once more without a rank."""
    pair = st.tuples(KEYS, KEYS).filter(lambda ends: ends[0] < ends[1])
    rows = []
    for ends in draw(st.sets(pair, max_size=12)):
        similarity = draw(FRACTIONS)
        directions = draw(
            st.sampled_from([(1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1)])
        )
        for is_there, (query, other) in zip(directions[:2], (ends, ends[::-1]), strict=True):
            if is_there:
                place = {"rank": draw(st.integers(1, 9)), "lift": draw(FRACTIONS)}
                rows.append({"query": query, "neighbour": other, "similarity": similarity, **place})
        if directions[2]:
            nothing = {"rank": None, "lift": 0.0}
            rows.append({"query": ends[0], "neighbour": ends[1], "similarity": similarity, **nothing})
    return draw(st.permutations(rows))


def slow_pairs(rows: Rows) -> Rows:
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows:
        ends = min(row["query"], row["neighbour"]), max(row["query"], row["neighbour"])
        empty = {f"{n}_{s}": v for s in ("left", "right") for n, v in (("rank", UNLISTED), ("lift", 0.0))}
        pair = found.setdefault(ends, {"left": ends[0], "right": ends[1], "similarity": row["similarity"], **empty})
        if row["rank"] is not None:
            side = "left" if row["query"] == ends[0] else "right"
            pair.update({f"{name}_{side}": row[name] for name in ("rank", "lift")})
    return [found[ends] for ends in sorted(found)]


@given(neighbours())
def test_both_directions_of_neighbours_become_one_pair(rows: Rows) -> None:
    table = undirected(pa.Table.from_pylist(rows, NEIGHBOURS).combine_chunks())
    assert table.schema == CANDIDATES
    assert table.to_pylist() == slow_pairs(rows)


class Archive(NamedTuple):
    """Questions, the neighbours that each lists, the nearest first, and pairs above the floor."""

    questions: dict[int, Question]
    lists: dict[int, list[int]]
    above: list[Pair]
    scores: dict[Pair, float]
    rarities: np.ndarray

    def score(self, one: int, other: int) -> float:
        return self.scores[min(one, other), max(one, other)]

    def lift(self, query: int, other: int) -> float:
        others = [self.score(query, each) for each in self.lists[query] if each != other]
        mean = sum(others) / len(others) if others else 0.0
        return float(np.float32((self.score(query, other) - mean) / (1 - mean)))


K, TERMS = 4, 30
REFERENCE = [0.3, 0.5, 0.6, 0.8]
WEIGHTS = {"place": 0.8, "lift": 0.7, "rank": -0.6, "title_lead": 3.0, "both_ways": 2.0, "tags": 0.5}


def model() -> Model:
    coefficients = [*(WEIGHTS.get(name, 0.1 + 0.02 * place) for place, name in enumerate(FEATURES)), -1.5]
    return Model(np.full(len(FEATURES), 0.1), np.full(len(FEATURES), 0.7), np.array(coefficients), 0.5)


def archive_of(seed: int, count: int = 40) -> Archive:
    """Of two sites; of ten questions nine list up to K others, and what lists a question is not always listed by it."""
    random = np.random.default_rng(seed)
    keys = (np.sort(random.choice(10**6, count, replace=False)) | (random.integers(0, 2, count) << ID_BITS)).tolist()

    def terms(most: int, below: int = TERMS) -> dict[int, int]:
        found = random.choice(below, random.integers(0, most + 1), replace=False).tolist()
        return {term: int(random.integers(1, 4)) for term in found}

    def marks(own: int) -> dict[int, int]:
        some = {(int(kind), int(random.integers(3))) for kind in random.integers(0, CITED, random.integers(0, 7))}
        return marked(*some, (CITED, int(random.integers(count))), (SELF, own))

    titles = [terms(6) for _ in range(count // 3)]  # so that some say the same words
    questions = {
        key: Question(titles[own % len(titles)], terms(12), terms(2, 5), marks(own)) for own, key in enumerate(keys)
    }
    scores = {pair: float(np.float32(random.uniform(0.1, 0.99))) for pair in combinations(sorted(keys), 2)}
    above = [pair for pair, score in scores.items() if score > 0.95]
    archive = Archive(questions, {key: [] for key in keys}, above, scores, random.uniform(0.5, 8, TERMS))
    for key in keys[count // 10 :]:
        near = sorted((other for other in keys if other != key), key=lambda other: -archive.score(key, other))
        archive.lists[key].extend(near[: random.integers(0, K + 1)])
    return archive._replace(rarities=archive.rarities.astype(np.float32))


class Written(NamedTuple):
    directed: Shuffled
    terms: TermTables


def write(archive: Archive, folder: Path, parts: int, shards: int = 2) -> Written:
    """Write all that the stage reads; the neighbours of a partition are in two files."""
    run, keys = str(folder), np.array(list(archive.questions))
    words = words_of(list(archive.questions.values()))
    terms = write_terms(f"{run}/terms", shards, parts, keys, words, archive.rarities)
    rows = [
        {"query": key, "neighbour": other, "similarity": archive.score(key, other), "rank": rank}
        | {"lift": archive.lift(key, other)}
        for key, near in archive.lists.items()
        for rank, other in enumerate(near, 1)
    ]
    rows += [{"query": a, "neighbour": b, "similarity": archive.score(a, b), "lift": 0.0} for a, b in archive.above]
    for name, some in (("one", rows[::2]), ("other", rows[1::2])):
        homes = [home_of(min(row["query"], row["neighbour"]), parts) for row in some]
        own = ([row for row, home in zip(some, homes, strict=True) if home == part] for part in range(parts))
        batches = (one_batch(pa.Table.from_pylist(rows, NEIGHBOURS)) for rows in own)
        write_batches(f"{run}/directed/{name}.arrow", batches, NEIGHBOURS)
    files = tuple(f"{run}/directed/{name}.arrow" for name in ("one", "other"))
    return Written(Shuffled(files, NEIGHBOURS, parts), terms)


SCALE = PairScorer(model(), np.array(REFERENCE), K)


def chosen(scored: Table, precision: float, threshold: float = -1.0) -> float:
    return thresholds_of(iter(Streamed(scored)), precision, threshold)["chosen"]["threshold"]


class Scored(NamedTuple):
    rows: dict[Pair, dict[str, Any]]
    scored: Table
    title_context: Table
    report: Report


def score(archive: Archive, folder: Path, parts: int, shards: int = 2) -> Scored:
    run = Run(str(folder), "pairs")
    made = score_pairs.function(run, *write(archive, folder, parts, shards), SCALE)
    rows = Broadcast(made.scored).read().to_pylist()
    found = {(row["left"], row["right"]): row for row in rows}
    assert len(found) == len(rows)
    return Scored(found, made.scored, made.title_context, run.report)


def slowly(archive: Archive) -> dict[Pair, dict[str, Any]]:
    """Score each pair by itself."""
    rarity, found = archive.rarities.tolist(), {}
    listed = {(min(key, other), max(key, other)) for key, near in archive.lists.items() for other in near}
    for pair in {*listed, *archive.above}:
        common = slow_shared(*(archive.questions[key] for key in pair), rarity)
        sides = [(key, other) for key, other in (pair, pair[::-1]) if other in archive.lists[key]]
        ranks = {key: archive.lists[key].index(other) + 1 for key, other in sides}
        lower = sum(score < archive.scores[pair] for score in REFERENCE)
        features = common | {
            "place": math.log((lower + 1) / (len(REFERENCE) - lower + 1)),
            "lift": max(archive.lift(*side) if side in sides else 0.0 for side in (pair, pair[::-1])),
            "rank": math.log(max(ranks.get(key, K + 1) for key in pair)),
            "title_lead": slow_lead(*pair, cosine=titles(archive), lists=archive.lists),
            "tags": 0.4 if math.isnan(common["tags"]) else common["tags"],
            "title_swap": common["title_swap"] * common["title_cosine"],
            "series": common["other_numbers"] * common["title_cosine"],
            "other_asking": common["other_asking"] * (common["title_cosine"] >= 0.9),
            "other_negation": common["other_negation"] * common["title_cosine"],
            "other_words": common["other_words"] * (common["title_swap"] > 0),
            "same_asker_alike": common["same_asker"] * common["text_cosine"],
        }
        found[pair] = {
            "rank_left": ranks.get(pair[0]),
            "rank_right": ranks.get(pair[1]),
            "similarity": archive.scores[pair],
            "title_overlap": common["title_cosine"],
            "text_overlap": common["text_cosine"],
            "tag_overlap": None if math.isnan(common["tags"]) else common["tags"],
            "probability": model().probabilities(np.array([[features[name] for name in FEATURES]]))[0],
        }
    return found


def titles(archive: Archive) -> Callable[[int, int], float]:
    rarity = archive.rarities.tolist()
    return lambda one, other: slow_cosine(archive.questions[one].title, archive.questions[other].title, rarity)


@pytest.mark.parametrize(("parts", "shards"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("seed", [1, 2])
def test_pairs_are_scored_as_each_would_be_by_itself(seed: int, parts: int, shards: int, tmp_path: Path) -> None:
    archive = archive_of(seed)
    found, _, _, report = score(archive, tmp_path, parts, shards)
    expected = slowly(archive)
    assert found.keys() == expected.keys()
    for pair, row in found.items():
        for name, value in expected[pair].items():
            assert row[name] == (None if value is None else pytest.approx(value, rel=1e-5, abs=1e-5)), name
    assert report.rows_out == len(found)
    assert report.rows_in == sum(map(len, archive.lists.values())) + len(archive.above)
    ranks = [(row["rank_left"] is None, row["rank_right"] is None) for row in found.values()]
    assert {*ranks} == {(True, True), (True, False), (False, True), (False, False)}


def test_the_parts_and_shards_change_no_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even in the last digit, although the neighbours of a question are in other files."""
    archive = archive_of(3)
    whole = score(archive, tmp_path / "whole", 1, 1)
    monkeypatch.setattr(stage, "_COMPARED_AT_ONCE", 3)
    assert score(archive, tmp_path / "by three", 1, 1).rows == whole.rows
    one, three = score(archive, tmp_path / "one", 1, 1), score(archive, tmp_path / "three", 3, 4)
    assert one.rows == three.rows
    assert score(archive, tmp_path / "seven", 7, 2).rows == one.rows
    first, second = (chosen(table, 0.3) for table in (one.scored, three.scored))
    assert first == second < 1


class Chosen(NamedTuple):
    """Return a threshold, and its record."""

    threshold: float
    chosen: dict[str, float]
    others: dict[float, dict[str, float]]


def chosen_of(parts: Sequence[Sequence[float]], precision: float = 0.8, threshold: float = -1.0) -> Chosen:
    """Return what is chosen for scored pairs with these probabilities, a list per partition."""
    scored = [pa.table({"probability": pa.array(part, pa.float32())}) for part in parts]
    found = thresholds_of(iter(scored), precision, threshold)
    others = {other["precision"]: other for other in found["others"]}
    return Chosen(found["chosen"]["threshold"], found["chosen"], others)


def made_probabilities(seed: int, count: int = 5_000) -> np.ndarray:
    return np.random.default_rng(seed).beta(0.4, 1.2, count).astype(np.float32)


@pytest.mark.parametrize("precision", [0.5, 0.8, 0.93])
@pytest.mark.parametrize("p", [made_probabilities(1), made_probabilities(2), np.array([1.0, 1.0, 0.1])])
def test_the_threshold_is_the_lowest_step_whose_pairs_are_precise_enough(precision: float, p: np.ndarray) -> None:
    p = p.astype(np.float64)
    threshold, chosen, others = chosen_of([p[:100], [], p[100:]], precision)
    steps = [step / 1_000 for step in range(1_000)]
    precise = [step for step in steps if (p >= step).any() and p[p >= step].mean() >= precision]
    above = p >= threshold
    assert above.sum() == (p >= min(precise)).sum()  # steps without pairs between them are one threshold
    assert chosen["threshold"] == threshold
    assert chosen["pairs"] == above.sum()
    assert chosen["expected_precision"] == pytest.approx(p[above].mean())
    assert p[above].mean() >= precision
    assert threshold in steps
    assert others[0.8] == chosen_of([p])[1]
    thresholds = [others[other]["threshold"] for other in sorted(others)]
    assert thresholds == sorted(thresholds)


def test_a_given_threshold_is_taken_and_what_it_is_expected_to_reach_written_down() -> None:
    p = made_probabilities(3)
    threshold, chosen, others = chosen_of([p], threshold=0.3)
    assert threshold == 0.3
    assert chosen == {
        "precision": 0.8,
        "threshold": 0.3,
        "pairs": (p >= 0.3).sum(),
        "expected_precision": pytest.approx(p[p >= 0.3].mean(dtype=np.float64)),
    }
    assert others[0.8]["threshold"] != 0.3


@pytest.mark.parametrize("probabilities", [[], [0.1, 0.2]])
def test_where_no_pair_is_sure_enough_none_may_join(probabilities: list[float]) -> None:
    threshold, chosen, _ = chosen_of([probabilities])
    assert threshold == 1.0
    assert chosen["pairs"] == 0
