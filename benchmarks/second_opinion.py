"""Measure what a reranker adds where people wrote the labels: rephrased titles, a made FAQ, and bug reports.

    python benchmarks/second_opinion.py [--quick] [--reranker MODEL] [--json FILE]

Each archive is read by `dupq.find_duplicates` without a reranker, with it, and by the reranker's cosine alone.

    stackfaq        DUPQ_SHARED_DATA/stackfaq: people's rephrasings of 56 questions, as titles
    … a tenth       the same, one title in ten: the probability at a cosine must not depend on the size
    … among others  the same among five and twenty times as many titles of Quora; pairs of these do not count
    faq             benchmarks/faq: 20 paraphrases without a shared content word, ten near copies, ten traps and others,
                    written before any system saw it
    gitbugs         DUPQ_SHARED_DATA/gitbugs: bug reports with texts, and their known duplicates
    arabic, korean  pairs of titles with labels by people: the AUC by the probability; the default model reads English

Recall at a precision of .9 is that of all right pairs, by the order of the candidates. `at .75` and `at .6` are the
mean probabilities of candidates with a cosine within .05 of that.
"""

import argparse
import csv
import itertools
import json
import lzma
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from scipy.stats import rankdata
from titles import SHARED

import dupq
from dupq.api.result import Duplicates

FAQ = Path(__file__).parent / "faq"
_FIRST = (50, 300)
_KINDS = ("paraphrase", "near", "trap")


def rows_of(path: Path, delimiter: str = "\t") -> list[dict[str, str]]:
    """The rows of a text file with a header."""
    open_text = lzma.open if path.suffix == ".xz" else open
    with open_text(path, "rt", encoding="utf-8-sig") as lines:
        return list(csv.DictReader(lines, delimiter=delimiter))


def decided(
    table: dict[str, list[Any]], right: set[tuple[int, int]], reranker: str | None, counted: int
) -> dict[str, Any]:
    """What a system makes of an archive, given its `right` pairs of rows. Pairs beyond `counted` rows don't count."""
    found = dupq.find_duplicates(table, reranker=reranker)
    pairs = found.pairs.arrow(["left", "right", "probability", "reranker", "joined"])
    pairs = pairs.filter(pc.less(pc.min_element_wise(pairs["left"], pairs["right"]), counted))
    ends = np.stack([pairs["left"].to_numpy(), pairs["right"].to_numpy()], axis=1)
    p, cosines = pairs["probability"].to_numpy(), pairs["reranker"].to_numpy()
    are_right = np.array([tuple(sorted(pair)) in right for pair in ends.tolist()])
    order = np.argsort(-p, kind="stable")
    groups = [itertools.combinations(sorted(group), 2) for group in found.groups()]
    joined = [pair for pair in itertools.chain.from_iterable(groups) if pair[0] < counted]
    at = {f"at {near}": p[np.abs(cosines - near) < 0.05] for near in (0.75, 0.6)}
    return {
        "right pairs": len(right),
        "among candidates": int(are_right.sum()),
        "recall at .9": recall_at(are_right[order], len(right)),
        **{f"first {first}": int(are_right[order][:first].sum()) for first in _FIRST},
        "expected in first 50": round(float(np.sort(p)[::-1][:50].sum()), 1),
        "joined": len(joined),
        "joined right": sum(pair in right for pair in joined),
        **{name: round(float(values.mean()), 3) for name, values in at.items() if len(values)},
    }


def recall_at(are_right: np.ndarray, total: int, precision: float = 0.9) -> float:
    """The largest share of all right pairs in a beginning of the order that is precise enough."""
    counts = np.cumsum(are_right)
    enough = np.flatnonzero(counts >= precision * np.arange(1, len(counts) + 1))
    return round(float(counts[enough[-1]]) / max(1, total), 3) if len(enough) else 0.0


def compared(
    titles: Sequence[str],
    right: set[tuple[int, int]],
    model: str,
    bodies: list[str] | None = None,
    counted: int | None = None,
) -> dict[str, Any]:
    """The figures without and with the reranker; `counted` rows are labelled, all of them if it is None."""
    table: dict[str, list[Any]] = {"id": list(range(len(titles))), "title": list(titles)}
    if bodies is not None:
        table["text"] = bodies
    counted = len(titles) if counted is None else counted
    return {"without": decided(table, right, None, counted), "with": decided(table, right, model, counted)}


def group_pairs(groups: Sequence[str]) -> set[tuple[int, int]]:
    """All pairs of rows of one group."""
    members: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    return {pair for rows in members.values() for pair in itertools.combinations(rows, 2)}


def rephrasings(model: str, quick: bool) -> dict[str, Any]:
    """StackFAQ whole, thinned and diluted."""
    rows, draw = rows_of(SHARED / "stackfaq" / "questions.tsv"), random.Random(5)
    titles, groups = [row["question"] for row in rows], [row["group"] for row in rows]
    cases = {"stackfaq": compared(titles, group_pairs(groups), model)}
    for number in range(1 if quick else 3):
        some = sorted(draw.sample(range(len(rows)), len(rows) // 10))
        own = group_pairs([groups[row] for row in some])
        cases[f"stackfaq, a tenth ({number + 1})"] = compared([titles[row] for row in some], own, model)
    others = [row["question"] for row in rows_of(SHARED / "quora" / "questions.tsv.xz")]
    draw.shuffle(others)
    for times in (5,) if quick else (5, 20):
        many = others[: times * len(titles)]
        found = compared(titles + many, group_pairs(groups), model, counted=len(titles))
        cases[f"stackfaq among {times} times as many"] = found
    return cases


def faq(model: str) -> dict[str, Any]:
    """The made FAQ: how many of each kind are joined, and in the first 50; by the plain cosine too."""
    rows, pairs = rows_of(FAQ / "titles.tsv"), rows_of(FAQ / "pairs.tsv")
    row_of = {row["id"]: number for number, row in enumerate(rows)}
    kinds = {tuple(sorted((row_of[pair["left"]], row_of[pair["right"]]))): pair["kind"] for pair in pairs}
    titles, result = [row["title"] for row in rows], dict[str, Any]()

    for name, reranker in (("without", None), ("with", model)):
        found = dupq.find_duplicates(titles, reranker=reranker)
        ranked = [tuple(sorted(ends)) for ends in zip(*_ends(found), strict=True)]
        joined = {pair for group in found.groups() for pair in itertools.combinations(sorted(group), 2)}
        result[name] = {
            kind: {
                "joined": sum(kinds[pair] == kind for pair in joined & kinds.keys()),
                "joined or in the first 50": sum(
                    kinds[pair] == kind for pair in kinds.keys() & (joined | {*ranked[:50]})
                ),
            }
            for kind in _KINDS
        }
        result[name]["other pairs joined"] = [[titles[row] for row in pair] for pair in joined - kinds.keys()]
        result[name]["traps joined"] = [[titles[row] for row in pair] for pair in joined if kinds.get(pair) == "trap"]
    plain = _by_cosine(titles, model)[:50]
    result["cosine alone"] = {
        kind: {"in the first 50": sum(kinds.get(pair) == kind for pair in plain)} for kind in _KINDS
    }
    return result


def _ends(found: Duplicates) -> tuple[list[int], list[int]]:
    table = found.pairs.arrow(["left", "right"])
    return table["left"].to_pylist(), table["right"].to_pylist()


def _by_cosine(titles: list[str], model: str) -> list[tuple[int, int]]:
    """All pairs of titles, by the cosine of the reranker's vectors."""
    from dupq.encoders.sentence_models import DEFAULT, reranker_at, sentence_vectors

    reader = reranker_at(DEFAULT if model == "auto" else model, "--reranker ")
    vectors = sentence_vectors(reader, titles, "cpu").astype(np.float32)
    rows, columns = np.triu_indices(len(titles), 1)
    order = np.argsort(-(vectors @ vectors.T)[rows, columns], kind="stable")
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


def bugs(model: str) -> dict[str, Any]:
    """Bug reports with bodies."""
    reports = rows_of(SHARED / "gitbugs" / "seamonkey.csv", ",")
    row_of = {report["id"]: row for row, report in enumerate(reports)}
    known = rows_of(SHARED / "gitbugs" / "seamonkey-duplicates.csv", ",")
    right = {tuple(sorted((row_of[pair["left"]], row_of[pair["right"]]))) for pair in known}
    bodies = [report["text"] for report in reports]
    return compared([report["title"] for report in reports], right, model, bodies)


def labelled(path: Path, delimiter: str, label: str, model: str | None, most: int) -> dict[str, float]:
    """The AUC by the probability over labelled pairs of titles in another language; pairs without one count as 0."""
    rows = rows_of(path, delimiter)[:most]
    titles = list(dict.fromkeys(row[side] for row in rows for side in ("question1", "question2")))
    row_of = {title: row for row, title in enumerate(titles)}
    result = {}
    for name, reranker in (("without", None), ("with", model)):
        found = dupq.find_duplicates(titles, reranker=reranker, k=50)
        p = dict(
            zip(
                map(frozenset, zip(*_ends(found), strict=True)),
                found.pairs.arrow()["probability"].to_pylist(),
                strict=True,
            )
        )
        scores = np.array([p.get(frozenset((row_of[row["question1"]], row_of[row["question2"]])), 0.0) for row in rows])
        same = np.array([row[label] == "1" for row in rows])
        ranks = rankdata(scores)
        pairs = same.sum() * (~same).sum()
        result[name] = round(float((ranks[same].sum() - same.sum() * (same.sum() + 1) / 2) / pairs), 3)
        result[f"{name}, read by"] = found.reranker or "nothing"
    return result


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer thinned and diluted archives, fewer pairs")
    parser.add_argument("--reranker", default="auto", metavar="MODEL")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    model, most = options.reranker, 500 if options.quick else 2_000
    figures = rephrasings(model, options.quick) | {"faq": faq(model), "gitbugs": bugs(model)}
    figures["arabic"] = labelled(SHARED / "arabic" / "pairs.tsv", "\t", "duplicate", model, most)
    figures["korean"] = labelled(SHARED / "korean" / "pairs.csv", ",", "is_duplicate", model, most)
    for name, values in figures.items():
        print(name)
        for system, row in values.items():
            print(f"    {system:12} {json.dumps(row, ensure_ascii=False)}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
