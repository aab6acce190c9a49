"""The figures of README and of the comparison with other tools are those of benchmarks/results/."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "docs/comparison.md"]
SYSTEMS = {
    "BM25": "bm25",
    "all-MiniLM-L6-v2": "sentence-transformers",
    "dupq's default encoder": "dupq",
    "`dupq`, the default": "dupq",
    "`dupq-distilled`, taught by MiniLM": "dupq-distilled",
    "… on questions that MiniLM has not read": "dupq-distilled on questions that the teacher has not read",
}


def figures_of(text: str, kind: str) -> Any:
    """The figures that the page links to."""
    (name,) = set(re.findall(rf"benchmarks/results/({kind}-[\d-]+\.json)", text))
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


@pytest.mark.parametrize("page", PAGES)
def test_what_encoders_reach_is_what_was_measured(page: str) -> None:
    text = (ROOT / page).read_text()
    measured = figures_of(text, "encoders")
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    shown = {row[0]: row[1:] for row in rows if row[0] in SYSTEMS}
    assert len(shown) >= 3
    for system, cells in shown.items():
        for site, cell in zip(("travel", "cs", "quora"), cells, strict=False):
            if cell:
                found = measured[site][SYSTEMS[system]]
                each = [found[name] * 100 for name in ("accuracy_at_1", "accuracy_at_10", "map")]
                assert [float(part) for part in cell.split(" / ")] == pytest.approx(each, abs=0.06)


def test_what_rivals_join_is_what_was_measured() -> None:
    text = (ROOT / "docs/decisions.md").read_text()
    sites = json.loads((ROOT / "benchmarks" / "results" / "rivals-2026-11-27.json").read_text())
    for system in ("BM25", "MiniLM", "dupq"):
        cells = []
        for site in ("travel", "cs"):
            joined, following = (sites[f"{site}.stackexchange.com"][system][kind] for kind in ("joined", "next"))
            cells += [f"{joined['pairs']}: {joined['right']} ({joined['linked']})", str(following["right"])]
        assert f"| {system} | {' | '.join(cells)} |" in text


def test_what_worklists_hold_is_what_was_measured() -> None:
    text = (ROOT / "docs/decisions.md").read_text()
    sites = figures_of(text, "worklists")
    assert len(sites) == 8
    small = [0, 0, 0]
    for site, found in sites.items():
        tops = [(top["same"], top["expected"]) for top in found["likeliest"].values()]
        joined = f"{found['joined']['pairs']}: {found['joined']['right']}"
        row = [site.removesuffix(".stackexchange.com"), f"{found['questions']:,}", joined]
        assert f"| {' | '.join([*row, *(f'{right} ({expected})' for right, expected in tops)])} |" in text
        if found["questions"] < 2_000:
            small = [sum_so_far + right for sum_so_far, (right, _) in zip(small, tops, strict=True)]
    rights = [
        [top["same"] for top in sites[f"{name}.stackexchange.com"]["likeliest"].values()] for name in ("cs", "travel")
    ]
    shown = (f"**{' / '.join(map(str, right))}**" for right in (small, *rights))
    assert f"| **dupq** | {' | '.join(shown)} |" in (ROOT / "README.md").read_text()


def test_what_a_reranker_adds_is_what_was_measured() -> None:
    text, readme = (ROOT / "docs/decisions.md").read_text(), (ROOT / "README.md").read_text()
    figures = figures_of(text, "second-opinion")
    cases = ("stackfaq", "stackfaq among 5 times as many", "stackfaq among 20 times as many", "gitbugs")
    for case in cases:
        cells = [f"{figures[case]['with']['right pairs']:,}"]
        for row in (figures[case]["without"], figures[case]["with"]):
            cells += [
                f"{row['joined']:,}: {row['joined right']:,}",
                f"{row['recall at .9']:.2f}",
                f"{row['first 300']}",
            ]
        assert f"| {' | '.join(cells)} |" in text
    joined = figures["stackfaq"]["with"]
    assert f"dupq joins {joined['joined right']:,} and {joined['joined'] - joined['joined right']} wrong ones" in readme


def test_speeds_are_what_was_measured() -> None:
    text = (ROOT / "docs/comparison.md").read_text()
    kinds = ("near-duplicates", "neighbours", "encode-dupq", "ingest")
    signatures, nearest, encoded, ingest = (figures_of(text, kind) for kind in kinds)
    largest = nearest["runs"][2]
    assert (largest["questions"], largest["dimensions"]) == (200_000, 300)
    told = [
        f"{signatures['us_a_text_ours']:.2f} µs",
        f"datasketch {signatures['us_a_text_datasketch']:.0f} µs",
        f"{largest['topk_s']:.1f} s",
        f"{largest['vs_faiss_flat']:.1f} times",
        f"{encoded['encoders']['dupq']['questions_per_second']:,.0f}",
        f"{encoded['minilm']['questions_per_second']:.1f}",
        f"{ingest['archive_s']:.1f} s | `7zz`, unpacking it only, {ingest['seven_zip_s']:.1f} s",
    ]
    assert not [figure for figure in told if figure not in text]
