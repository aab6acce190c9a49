"""Two nights over the sample archive: what people judge on the worklist of the first holds in the second."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from golden.observe import put_together
from inline import without_ray

import dupq
from dupq.api.runs import Run
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.report.summary import summary
from dupq.runs.reader import Key, ends_of
from dupq.sample.archive import write_sample

SETTINGS = ("calibration.unfit=continue", "calibration.sample=50", "neighbours.k=5", "clusters.worklist=120")
JUDGED = 50


@dataclass(frozen=True)
class Nights:
    """Two runs, and what was judged between them."""

    first: Run
    second: Run
    verdicts: list[Verdict]

    def judged(self, verdict: str) -> list[tuple[Key, Key]]:
        return [ends_of(row._asdict()) for row in self.verdicts if row.verdict == verdict]


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    folder = tmp_path_factory.mktemp("nights")
    with without_ray():
        sample = write_sample(folder / "dump", questions=300)
        ingest(IngestJob((str(sample.archive),), str(folder)))
        encoder = put_together(f"{folder}/questions", str(folder / "encoder"))

        def night(**more: Any) -> Run:
            places = f"{folder}/questions", encoder, f"{folder}/runs", f"{folder}/links"
            return dupq.open_run(dedup(DedupJob(*places, assignments=SETTINGS, **more)).uri)

        first = night()
        given = [
            Verdict(*(row[name] for name in Verdict._fields[:4]), "same" if row["rank"] % 3 == 0 else "different")
            for row in first.worklist.arrow().to_pylist()[:JUDGED]
        ]
        near = first.pairs.arrow(filter=[("source", "in", ["exact", "near_duplicate"])]).to_pylist()
        given += [Verdict(*(row[name] for name in Verdict._fields[:4]), "different") for row in near[:5]]
        Path(folder, "runs", "verdicts.tsv").write_text(format_verdicts(given))
        yield Nights(first, night(previous=f"{folder}/runs"), given)


def clusters_of(run: Run) -> dict[Key, str]:
    return {(row["site"], row["question_id"]): row["cluster_id"] for row in run.clusters.arrow().to_pylist()}


def test_it(nights: Nights) -> None:
    for row in nights.first.worklist.arrow().to_pylist()[:5]:
        print(row)
    print(summary(nights.second.uri))
    print(nights.second.metrics["judged"], nights.second.metrics["worklist"])
    clusters = clusters_of(nights.second)
    for left, right in nights.judged("same"):
        assert clusters[left] == clusters[right]
    for left, right in nights.judged("different"):
        assert clusters[left] != clusters[right]
