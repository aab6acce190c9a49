"""Directed neighbours to pairs, and the threshold over all of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq import storage
from dupq.clusters.evidence import UNLISTED
from dupq.stages.pairs import PairFiles, choose_threshold, undirected
from dupq.stages.terms import TermFiles
from dupq.tables import CANDIDATES, NEIGHBOURS, SCORED

FRACTIONS = st.floats(-1, 1, width=32)
KEYS = st.one_of(st.integers(0, 6), st.integers((1 << 48) - 2, (1 << 48) + 4))
Rows = list[dict[str, Any]]


@st.composite
def neighbours(draw: st.DrawFn) -> Rows:
    """Each side lists the other or not; beside that a pair may be above the floor, once, without a rank."""
    pair = st.tuples(KEYS, KEYS).filter(lambda ends: ends[0] < ends[1])
    rows = []
    for ends in draw(st.sets(pair, max_size=12)):
        similarity = draw(FRACTIONS)
        directions = draw(
            st.sampled_from([(1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1)])
        )
        for is_there, (query, other) in zip(directions[:2], (ends, ends[::-1]), strict=True):
            if is_there:
                place = {"rank": draw(st.integers(1, 9)), "lead": draw(FRACTIONS), "lift": draw(FRACTIONS)}
                rows.append({"query": query, "neighbour": other, "similarity": similarity, **place})
        if directions[2]:
            nothing = {"rank": None, "lead": 0.0, "lift": 0.0}
            rows.append({"query": ends[0], "neighbour": ends[1], "similarity": similarity, **nothing})
    return draw(st.permutations(rows))


def slowly(rows: Rows) -> Rows:
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows:
        ends = min(row["query"], row["neighbour"]), max(row["query"], row["neighbour"])
        empty = {
            f"{n}_{s}": v for s in ("left", "right") for n, v in (("rank", UNLISTED), ("lead", 0.0), ("lift", 0.0))
        }
        pair = found.setdefault(ends, {"left": ends[0], "right": ends[1], "similarity": row["similarity"], **empty})
        if row["rank"] is not None:
            side = "left" if row["query"] == ends[0] else "right"
            pair.update({f"{name}_{side}": row[name] for name in ("rank", "lead", "lift")})
    return [found[ends] for ends in sorted(found)]


@given(neighbours())
def test_both_directions_of_neighbours_become_one_pair(rows: Rows) -> None:
    table = undirected(pa.Table.from_pylist(rows, NEIGHBOURS).combine_chunks())
    assert table.schema == CANDIDATES
    assert table.to_pylist() == slowly(rows)


@given(neighbours(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_and_their_chunks_change_nothing(rows: Rows, order) -> None:
    mixed = order.sample(rows, len(rows))
    pieces = [NEIGHBOURS.empty_table(), *(pa.Table.from_pylist([row], NEIGHBOURS) for row in mixed)]
    assert undirected(pa.concat_tables(pieces).combine_chunks()).equals(
        undirected(pa.Table.from_pylist(rows, NEIGHBOURS).combine_chunks())
    )


def files_with(folder: Path, *parts: Sequence[float]) -> PairFiles:
    """Scored pairs of these probabilities, a list a part."""
    files = PairFiles(str(folder), "", TermFiles("", "", (), len(parts)), "")
    for part, probabilities in enumerate(parts):
        rows = [
            {
                "left": row,
                "right": row + 1,
                "similarity": 0.5,
                "title_overlap": 0.0,
                "text_overlap": 0.0,
                "probability": p,
            }
            for row, p in enumerate(probabilities)
        ]
        storage.write_table(files.scored(part), pa.Table.from_pylist(rows, SCORED), SCORED)
    return files


def written(files: PairFiles) -> tuple[dict[str, float], dict[float, dict[str, float]]]:
    found = storage.read_json(files.threshold)
    return found["chosen"], {other["precision"]: other for other in found["others"]}


def made_probabilities(seed: int, count: int = 5_000) -> np.ndarray:
    return np.random.default_rng(seed).beta(0.4, 1.2, count).astype(np.float32)


@pytest.mark.parametrize("precision", [0.5, 0.8, 0.93])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_threshold_is_the_lowest_step_whose_pairs_are_precise_enough(
    precision: float, seed: int, tmp_path: Path
) -> None:
    p = made_probabilities(seed).astype(np.float64)
    files = files_with(tmp_path, p[:100], [], p[100:])
    threshold = choose_threshold(files, precision, -1.0)
    steps = [step / 1_000 for step in range(1_000)]
    precise = [step for step in steps if (p >= step).any() and p[p >= step].mean() >= precision]
    above = p >= threshold
    assert above.sum() == (p >= min(precise)).sum()  # steps without pairs between them are one threshold
    chosen, _ = written(files)
    assert chosen["threshold"] == threshold
    assert chosen["pairs"] == above.sum()
    assert chosen["expected_precision"] == pytest.approx(p[above].mean())
    assert p[above].mean() >= precision
    assert threshold in steps


def test_a_given_threshold_is_taken_and_what_it_is_expected_to_reach_written_down(tmp_path: Path) -> None:
    p = made_probabilities(3)
    files = files_with(tmp_path, p)
    assert choose_threshold(files, 0.8, 0.3) == 0.3
    chosen, others = written(files)
    assert chosen == {
        "precision": 0.8,
        "threshold": 0.3,
        "pairs": (p >= 0.3).sum(),
        "expected_precision": pytest.approx(p[p >= 0.3].mean(dtype=np.float64)),
    }
    assert others[0.8]["threshold"] != 0.3


def test_thresholds_for_other_precisions_are_written_beside_it(tmp_path: Path) -> None:
    files = files_with(tmp_path, made_probabilities(4))
    choose_threshold(files, 0.8, -1.0)
    chosen, others = written(files)
    assert others[0.8] == chosen
    thresholds = [others[precision]["threshold"] for precision in sorted(others)]
    assert thresholds == sorted(thresholds)
    assert all(other["expected_precision"] >= precision for precision, other in others.items())


def test_a_threshold_that_is_written_down_stays(tmp_path: Path) -> None:
    files = files_with(tmp_path, made_probabilities(5))
    first = choose_threshold(files, 0.8, -1.0)
    assert choose_threshold(files, 0.6, 0.1) == first


@pytest.mark.parametrize("probabilities", [[], [0.1, 0.2]])
def test_where_no_pair_is_sure_enough_none_may_join(probabilities: list[float], tmp_path: Path) -> None:
    files = files_with(tmp_path, probabilities)
    assert choose_threshold(files, 0.8, -1.0) == 1.0
    assert written(files)[0]["pairs"] == 0


def test_the_threshold_does_not_depend_on_the_parts(tmp_path: Path) -> None:
    p = made_probabilities(6)
    one, many = files_with(tmp_path / "one", p), files_with(tmp_path / "many", *np.array_split(p[::-1], 7))
    assert choose_threshold(one, 0.8, -1.0) == choose_threshold(many, 0.8, -1.0)


def test_pairs_that_are_all_as_good_as_certain_are_counted_above_their_threshold(tmp_path: Path) -> None:
    files = files_with(tmp_path, [1.0, 1.0, 0.1])
    threshold = choose_threshold(files, 0.8, -1.0)
    assert written(files)[0] == {"precision": 0.8, "threshold": threshold, "pairs": 2, "expected_precision": 1.0}
