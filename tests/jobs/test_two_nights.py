"""Two nights over the sample archive: verdicts on the first night's worklist hold in the second."""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from inline import without_ray

from dupq.api.runs import Run
from dupq.errors import SettingError
from dupq.evaluation.verdicts import Verdict, format_verdicts, parse_verdicts
from dupq.export import DIGEST, export
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.runs.reader import Key, ends_of

JUDGED, NEAR = 50, 5
MOST = 120
SETTINGS = ("calibration.unfit=continue", "calibration.sample=50", "neighbours.k=5", f"clusters.worklist={MOST}")


@dataclass(frozen=True)
class Nights:
    """Two runs, and the verdicts between them."""

    archive: tuple[str, str, str]
    first: Run
    second: Run
    verdicts: list[Verdict]

    def job(self, runs: str, **more: Any) -> DedupJob:
        return job_of(self.archive, runs, **more)

    def judged(self, verdict: str) -> list[tuple[Key, Key]]:
        return [ends_of(row._asdict()) for row in self.verdicts if row.verdict == verdict]


@pytest.fixture(scope="module")
def nights(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Nights:
    archive = f"{untrained}/questions", f"{untrained}/encoder", f"{untrained}/links"
    runs = str(tmp_path_factory.mktemp("nights"))
    with without_ray():
        first = Run(dedup(job_of(archive, runs)).uri)
        work = first.worklist.arrow().to_pylist()[:JUDGED]
        near = first.pairs.arrow(filter=[("source", "in", ["exact", "near_duplicate"])]).to_pylist()[:NEAR]
        given = [verdict(row, "different" if row["rank"] % 3 else "same") for row in work]
        given += [verdict(row, "different") for row in near]
        Path(runs, "verdicts.tsv").write_text(format_verdicts(given))
        return Nights(archive, first, Run(dedup(job_of(archive, runs, previous=runs)).uri), given)


def job_of(archive: tuple[str, str, str], runs: str, **more: Any) -> DedupJob:
    questions, encoder, links = archive
    return DedupJob(questions, encoder, runs, links, assignments=SETTINGS, **more)


def verdict(row: dict[str, Any], word: str) -> Verdict:
    return Verdict(**{name: row[name] for name in Verdict._fields[:4]}, verdict=word)


def links_of(run: Run) -> list[tuple[Key, Key]]:
    rows = run.links.arrow(filter=[("link_type", "=", "duplicate")]).to_pylist()
    return [((row["site"], row["question_id"]), (row["site"], row["related_id"])) for row in rows]


def clusters_of(run: Run) -> dict[Key, str]:
    return {(row["site"], row["question_id"]): row["cluster_id"] for row in run.clusters.arrow().to_pylist()}


def rows_of(run: Run, table: str) -> list[dict[str, Any]]:
    return getattr(run, table).arrow().to_pylist()


def test_what_was_judged_holds_in_the_next_night(nights: Nights) -> None:
    clusters = clusters_of(nights.second)
    assert all(clusters[left] == clusters[right] for left, right in nights.judged("same"))
    assert not any(clusters[left] == clusters[right] for left, right in nights.judged("different"))
    together = clusters_of(nights.first)
    assert sum(together[left] == together[right] for left, right in nights.judged("different")) == NEAR
    assert not any(together[left] == together[right] for left, right in nights.judged("same"))


def test_a_near_duplicate_that_was_judged_different_is_no_pair_but_the_encoders(nights: Nights) -> None:
    judged = set(nights.judged("different")[-NEAR:])
    found = [row for row in rows_of(nights.second, "pairs") if ends_of(row) in judged]
    assert {(row["source"], row["joined"]) for row in found} <= {("encoder", False)}


def test_pairs_that_people_joined_say_so(nights: Nights) -> None:
    judged = set(nights.judged("same"))
    found = {ends_of(row): row for row in rows_of(nights.second, "pairs") if row["joined"]}
    assert judged <= found.keys()
    listed = {ends_of(row) for row in rows_of(nights.first, "pairs")}
    for row in found.values():
        assert (row["source"] == "verdict") == (ends_of(row) in judged - listed)


def test_a_worklist_holds_the_likeliest_pairs_that_nobody_has_settled(nights: Nights) -> None:
    for run in (nights.first, nights.second):
        clusters, work = clusters_of(run), rows_of(run, "worklist")
        known = nx.Graph([tuple(clusters[key] for key in ends) for ends in links_of(run)])
        settled = {frozenset(clusters[key] for key in ends_of(row._asdict())) for row in nights.verdicts}
        best: dict[frozenset[str], dict[str, Any]] = {}
        for row in sorted(rows_of(run, "pairs"), key=lambda row: (-row["probability"], ends_of(row))):
            between = frozenset(clusters[key] for key in ends_of(row))
            is_known = between <= set(known) and nx.has_path(known, *between) if len(between) == 2 else True
            if not is_known and not (run is nights.second and between in settled):
                best.setdefault(between, row)
        expected = list(best.values())[:MOST]
        assert [ends_of(row) for row in work] == [ends_of(row) for row in expected]
        assert [row["rank"] for row in work] == list(range(1, len(expected) + 1))
        share = run.metrics["calibration"]["model"]["linked_share"]
        chances = [row["probability"] * (1 - share) / (1 - share * row["probability"]) for row in expected]
        assert [row["probability"] for row in work] == pytest.approx(chances)
        sums = list(accumulate(chances))
        assert [row["expected_right"] for row in work] == pytest.approx(sums)
        factor = math.exp(1.28 * run.metrics["calibration"]["error"])  # nothing was read by a reranker
        found = {"pairs": MOST, "first": 50, "expected_right": pytest.approx(sums[49]), "factor": pytest.approx(factor)}
        assert run.metrics["worklist"] == found
        assert factor > 1
    proposed = [{ends_of(row) for row in rows_of(run, "worklist")} for run in (nights.first, nights.second)]
    assert not proposed[1] & {ends_of(row._asdict()) for row in nights.verdicts}


def test_the_sheet_is_the_table_to_be_filled_in(nights: Nights) -> None:
    text = Path(nights.first.uri, "worklist.tsv").read_text()
    header, *lines = (line.split("\t") for line in text.splitlines())
    rows = rows_of(nights.first, "worklist")
    assert header[0] == "pair"
    assert sorted(header[1:]) == sorted(rows[0])
    assert [line[header.index("evidence")] for line in lines] == [row["evidence"] for row in rows]
    assert parse_verdicts(text, "worklist.tsv") == []
    filled = [[*line[:5], "same", *line[6:]] for line in lines]
    judged = "".join("\t".join(line) + "\n" for line in [header, *filled])
    assert [ends_of(row._asdict()) for row in parse_verdicts(judged, "")] == [ends_of(row) for row in rows]


def test_a_digest_since_any_earlier_run_is_the_one_of_a_run_that_builds_on_it(nights: Nights, tmp_path: Path) -> None:
    pages = []
    for number, since in enumerate((None, nights.first.uri, nights.second.uri)):
        export(nights.second.uri, "digest", str(tmp_path / str(number)), since)
        pages.append((tmp_path / str(number) / DIGEST).read_text())
    before, first, itself = pages
    assert first == before.replace("the run before", f"run {Path(nights.first.uri).name}") != before
    assert "no group has changed" in itself
    with pytest.raises(SettingError, match="--since: --to csv writes the whole run"):
        export(nights.second.uri, "csv", str(tmp_path / "csv"), nights.first.uri)


@without_ray()
def test_the_same_job_again_is_the_same_run(nights: Nights) -> None:
    """Although the latest run, which it names as the earlier one, is now itself."""
    runs = str(Path(nights.second.uri).parent)
    assert dedup(nights.job(runs, previous=runs)).uri == nights.second.uri


@without_ray()
def test_verdicts_are_carried_on_and_later_ones_win(nights: Nights, tmp_path: Path) -> None:
    """The earlier run keeps them, if the folder of runs has no verdicts."""
    given = tmp_path / "given.tsv"
    taken_back, kept = nights.verdicts[0], nights.verdicts[1:]
    given.write_text(format_verdicts([taken_back._replace(verdict="unsure")]))
    third = Run(dedup(nights.job(str(tmp_path), previous=nights.second.uri, verdicts=str(given))).uri)
    counts = Counter({"same": 0, "different": 0, "unsure": 1, "contradicted": 1, "contradicting": 0})
    assert third.metrics["judged"] == dict(counts + Counter(row.verdict for row in kept)) | {"contradicting": 0}
    clusters = clusters_of(third)
    for row in kept:
        left, right = ends_of(row._asdict())
        assert (clusters[left] == clusters[right]) == (row.verdict == "same")


def test_the_decision_of_a_notebook_keeps_to_the_verdicts_too(nights: Nights) -> None:
    again = nights.second.at(nights.second.threshold)
    found = {(row["site"], row["question_id"]): row["cluster_id"] for row in again.clusters.arrow().to_pylist()}
    assert found == {key: name for key, name in clusters_of(nights.second).items() if key in found}
    assert {key for pair in nights.judged("same") for key in pair} <= found.keys()
    assert not again.changes.arrow().to_pylist()
