"""A small archive with an encoder that has bags of words, and two runs over it that differ in their threshold."""

from dataclasses import dataclass

import pytest
from inline import without_ray


@dataclass(frozen=True)
class SmallRuns:
    folder: str  # the archive, `encoder`, `runs` and `other_runs`
    strict: str  # URI of the run with the threshold HIGH
    loose: str  # and of that with LOW
    HIGH = 0.6
    LOW = 0.05


@pytest.fixture(scope="session")
@without_ray()
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> SmallRuns:
    from golden.observe import put_together
    from riddles.grammar import write_sample

    from dupq.pipelines.dedup import DedupJob, dedup
    from dupq.pipelines.ingest import IngestJob, ingest

    work = tmp_path_factory.mktemp("small")
    sample = write_sample(work / "dump", questions=300)
    folder = str(work / "out" / "sample")
    ingest(IngestJob((str(sample.archive),), folder, assignments=("ingest.shard_rows=120",)))
    put_together(f"{folder}/questions", f"{folder}/encoder")

    def run(threshold: float, output: str) -> str:
        chosen = (f"clusters.threshold={threshold}", "neighbours.k=3", "calibration.sample=50", "calibration.review=10")
        free = ("clusters.known_links=use", "calibration.unfit=continue")
        links = f"{folder}/links"
        job = DedupJob(f"{folder}/questions", f"{folder}/encoder", output, links, assignments=(*chosen, *free))
        return dedup(job).uri

    strict = run(SmallRuns.HIGH, f"{folder}/runs")
    return SmallRuns(folder, strict, run(SmallRuns.LOW, f"{folder}/other_runs"))
