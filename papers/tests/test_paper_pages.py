"""The pages of the papers' tables, of made-up results."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dupq.errors import DupqError
from dupq.evaluation.measures import bootstrap_interval
from dupq_papers.experiments.orders import Claim
from dupq_papers.experiments.rows import QUOTED, Row, Table
from dupq_papers.pages import lines as papers
from dupq_papers.pages.index import write_index
from dupq_papers.pages.lines import Measured, columns, lines, records, sizes
from dupq_papers.pages.orders import best_two, ours_against_others, verdict
from dupq_papers.pages.pages import write_pages

ROWS = (
    Row("A", "bm25", {"Theirs": {"map": 40.0}}),
    Row("B <b>", "tfidf", {"Theirs": {"map": 30.0}}),
    Row("Elsewhere", QUOTED, {"Theirs": {"map": 50.0}}),
    Row("ours", "preset dupq", is_ours=True),
)
TABLE = Table("some-1", "Some et al.", "Table 1: systems", "ranking", {"map": "MAP", "accuracy_at_1": "Acc@1"}, ROWS)


def result(values: list[float], curve: tuple[dict[str, float], ...] = ()) -> dict:
    sizes = {"questions": 1_000, "training_pairs": 10, "development_pairs": 4, "test_pairs": 6, "test_queries": 3}
    mean = sum(values) / len(values)
    shown = {"values": {"map": mean}, "each": {"map": values}, "curve": list(curve), "parameters": {"k1": 1.2}}
    return {**shown, "sizes": sizes, "counts": {"test: queries over the limit": 4}, "seconds": 2.0}


def measured() -> Measured:
    results = {"A": result([0.5, 0.5, 0.5]), "B <b>": result([0.1, 0.2, 0.3]), "ours": result([0.6, 0.7, 0.8])}
    return Measured(TABLE, "site", "english", results)


def test_lines_have_ours_theirs_and_the_difference() -> None:
    first, second, quoted, ours = (line.cells for line in lines(measured()))
    assert first == ["A", "50.0 (50.0–50.0)", "–", "40.0", "+10.0", "10", "2"]
    assert second[0] == "B <b>"
    assert second[4] == "-10.0"
    assert quoted == ["Elsewhere (quoted)", "–", "–", "50.0", "", "", ""]
    assert ours[0] == "ours"
    assert [line.is_ours for line in lines(measured())] == [False, False, False, True]
    assert ours[3:5] == ["–", ""]


def test_without_figures_of_the_paper_there_are_no_differences() -> None:
    table = Table("some-2", "Some et al.", "Table 2", "ranking", {"map": "MAP"}, (Row("A", "bm25"),))
    of = Measured(table, "site", "english", {"A": result([0.5, 0.5])})
    assert columns(of) == ["System", "MAP", "Pairs", "Seconds"]
    assert lines(of) == [(["A", "50.0 (50.0–50.0)", "10", "2"], False)]


def test_rows_without_their_second_data_set_are_shown_empty_and_the_second_is_named() -> None:
    rows = (Row("A", "bm25"), Row("B", "bm25", {"Theirs": {"map": 40.0}}, vectors="other"))
    table = Table("some-2", "Some et al.", "Table 2", "ranking", {"map": "MAP"}, rows)
    alone = Measured(table, "site", "english", {"A": result([0.5, 0.5])})
    assert lines(alone)[1].cells == ["B (needs a second data set)", "–", "40.0", "", "", ""]
    assert [row["system"] for row in records(alone)] == ["A", "B"]
    assert "other data set" not in sizes(alone)
    both = Measured(table, "site", "english", {"A": result([0.5, 0.5]), "B": result([0.5, 0.5])}, "elsewhere")
    assert lines(both)[1].cells[0] == "B"
    assert sizes(both).endswith("The other data set is elsewhere.")


def test_pages_say_of_how_many_and_what_was_learned_from() -> None:
    assert sizes(measured()) == "1,000 questions; 3 of 7 test questions against all."
    asked = {**result([0.5, 0.0, 0.0, 0.5]), "counts": {}}
    candidates = Measured(replace(TABLE, task="candidates"), "site", "english", {"A": asked})
    assert sizes(candidates) == "1,000 questions; ten candidates of each of 4 of 4 test questions."
    nothing = result([0.5, 0.5])
    nothing["sizes"]["training_pairs"] = 0
    assert lines(Measured(TABLE, "site", "english", {"A": nothing}))[0].cells[-2:] == ["", "2"]
    further = {**result([0.5, 0.5]), "values": {"map": 0.5, "mrr": 0.6}}
    rows = records(Measured(TABLE, "site", "english", {"A": further}))
    assert [(row["measure"], row["ours"]) for row in rows if row["system"] == "A"] == [
        ("map", 0.5),
        ("accuracy_at_1", None),
        ("mrr", 0.6),
    ]
    assert rows[0]["parameters"] == {"k1": 1.2}


def test_records_have_a_row_a_figure() -> None:
    rows = [row for row in records(measured()) if row["measure"] == "map"]
    assert [(row["system"], row["ours"], row["paper"]) for row in rows] == [
        ("A", 0.5, 0.4),
        ("B <b>", pytest.approx(0.2), 0.3),
        ("Elsewhere", None, 0.5),
        ("ours", pytest.approx(0.7), None),
    ]
    assert rows[0]["difference"] == pytest.approx(0.1)


def test_the_first_two_are_told_apart() -> None:
    assert best_two(measured()).startswith("MAP: ours over A, p = 0.25")  # 2 of the 8 ways to choose three signs


def test_ours_are_set_against_the_best_of_the_others() -> None:
    assert ours_against_others(measured()) == "MAP: ours 70.0, the best of the others (A) 50.0: +20.0."
    assert not ours_against_others(Measured(TABLE, "site", "english", {"A": result([0.5, 0.5])}))


@pytest.mark.parametrize(
    ("better", "worse", "within", "expected"),
    [("A", "B <b>", 0.0, "holds"), ("B <b>", "A", 0.0, "does not hold"), ("A", "ours", 0.3, "holds")],
)
def test_claims_are_held_against_the_figures(better: str, worse: str, within: float, expected: str) -> None:
    claim = Claim("so they say", "some-1", "map", (better,), (worse,), within)
    found = verdict(claim, measured())
    assert found is not None
    assert found[0] == expected


def test_a_claim_of_what_was_not_measured_is_not_judged() -> None:
    assert verdict(Claim("", "some-1", "map", ("Elsewhere",), ("A",)), measured()) is None


def test_pages_are_written_with_their_pictures_and_escape_what_they_show(tmp_path: Path) -> None:
    write_pages([measured()], str(tmp_path), is_quick=True)
    write_index(str(tmp_path), is_quick=True)
    page = (tmp_path / "some-1.html").read_text()
    assert "B &lt;b&gt;" in page
    assert "<b>" not in page
    assert "<svg" in page
    assert "quick run" in page
    markdown = (tmp_path / "some-1.md").read_text()
    assert "| **ours** |" in markdown
    assert (tmp_path / "figures" / "some-1-site.svg").read_text().startswith("<svg")
    assert "some-1.md" in (tmp_path / "index.md").read_text()
    assert (tmp_path / "orders.md").exists()


def test_a_later_run_of_one_table_keeps_the_others_and_replaces_its_own(tmp_path: Path) -> None:
    second = Table("some-2", "Some et al.", "Table 2: more", "ranking", {"map": "MAP"}, (Row("A", "bm25"),))
    for values in ([0.5, 0.5], [0.25, 0.75, 0.8]):
        both = [measured()] if len(values) == 2 else []
        write_pages([*both, Measured(second, "site", "english", {"A": result(values)})], str(tmp_path), is_quick=False)
        write_index(str(tmp_path), is_quick=False, remarks=["not measured: some-3"])
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert [row["ours"] for row in rows if row["table"] == "some-2"] == [0.6]
    assert {row["table"] for row in rows} == {"some-1", "some-2"}
    assert pq.read_table(tmp_path / "results.parquet").num_rows == len(rows)
    index = (tmp_path / "index.md").read_text()
    assert "some-1.md" in index
    assert "not measured: some-3" in index


def test_a_damaged_page_of_an_earlier_run_is_named_with_what_to_do(tmp_path: Path) -> None:
    write_pages([measured()], str(tmp_path), is_quick=False)
    (tmp_path / "tables" / "some-1.json").write_text('{"title": "Table 1"}')
    with pytest.raises(DupqError, match=r"some-1\.json: 'rows' is missing; delete the file, and run its table again"):
        write_index(str(tmp_path), is_quick=False)


def test_intervals_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []

    def watched(each: np.ndarray, *rest: int) -> tuple[float, float]:
        computed.append(each.tolist())
        return bootstrap_interval(each, *rest)

    monkeypatch.setattr(papers, "bootstrap_interval", watched)
    write_pages([measured()], str(tmp_path), is_quick=False)
    assert len(computed) == 3


@pytest.mark.parametrize("figure", ["epochs", "pairs"])
def test_figures_are_drawn(figure: str, tmp_path: Path) -> None:
    curve = ({"epoch": 0.0, "quality": 0.1, "loss": 1.0}, {"epoch": 1.0, "quality": 0.2, "loss": 0.5})
    rows = (Row("A, 10 pairs", "bm25"), Row("A, 20 pairs", "bm25"))
    table = Table("some-2", "Some et al.", "Figure 2: x", "ranking", {"map": "MAP"}, rows, figure=figure)  # type: ignore[arg-type]
    of = Measured(table, "site", "english", {row.label: result([0.5, 0.6], curve) for row in rows})
    write_pages([of], str(tmp_path), is_quick=False)
    assert (tmp_path / "figures" / "some-2-site.svg").read_text().startswith("<svg")
    assert json.dumps(records(of))
