"""Archives of several sites, one of which is added later or left out: all sites of a run number its keys."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline import without_ray

import dupq
from dupq import storage
from dupq.job.run import Run
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.report.summary import summary

SITES = ("a.example.com", "b.example.com", "c.example.com")
FIRST = f"site={SITES[0]}/part-00000.parquet"
SETTINGS = ("calibration.unfit=continue", "calibration.sample=40", "calibration.review=12", "neighbours.k=3")


class Archive:
    """A folder of questions to which sites can be added."""

    def __init__(self, folder: Path, untrained: Path) -> None:
        self.folder, self.encoder = folder, f"{untrained}/encoder"
        self._rows = pq.ParquetFile(storage.list_files(f"{untrained}/questions", ".parquet")[0].uri).read()

    def add(self, site: str) -> None:
        """Add a site with fifty of the questions, others for each site."""
        place = self.folder / "questions" / f"site={site}" / "part-00000.parquet"
        place.parent.mkdir(parents=True)
        pq.write_table(self._rows.slice(SITES.index(site) * 50, 50), place)

    def run(self, **more: object) -> Run:
        places = f"{self.folder}/questions", self.encoder, f"{self.folder}/runs"
        return dedup(DedupJob(*places, assignments=SETTINGS, **more))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runs(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, Run]]:
    """Two runs: one before the first site was added, and one with verdicts on it that leaves this site out."""
    with without_ray():
        archive = Archive(tmp_path_factory.mktemp("sites"), untrained)
        for site in SITES[1:]:
            archive.add(site)
        before = archive.run()
        sheet = archive.folder / "judged.tsv"
        _, *lines = rows = [line.split("\t") for line in Path(before.path("review.tsv")).read_text().splitlines()]
        for line in lines:
            line[rows[0].index("verdict")] = "different"
        sheet.write_text("".join("\t".join(row) + "\n" for row in rows))
        archive.add(SITES[0])
        yield before, archive.run(skipped=(FIRST,), verdicts=str(sheet))


def sample_of(run: Run) -> pa.Table:
    return dupq.open_run(run.uri).review.arrow()


def test_a_site_that_is_left_out_has_no_questions_and_leaves_the_others_their_names(runs: tuple[Run, Run]) -> None:
    before, after = runs
    assert storage.read_json(after.path("metrics.json"))["sites"] == dict(zip(SITES, (0, 50, 50), strict=True))
    keys = ["site_left", "question_id_left", "site_right", "question_id_right"]
    columns = Path(after.path("review.tsv")).read_text().splitlines()
    asked = [tuple(line.split("\t")[1:5]) for line in columns[1:]]
    assert [tuple(map(str, row.values())) for row in sample_of(after).select(keys).to_pylist()] == asked
    assert sample_of(before).num_rows == len(asked) == 12
    assert {site for name in keys[::2] for site in sample_of(after)[name].to_pylist()} == set(SITES[1:])
    assert None not in sample_of(after)["title_left"].to_pylist()


def test_the_report_and_the_summary_of_a_run_with_an_empty_site_tell_so(runs: tuple[Run, Run]) -> None:
    _, after = runs
    assert "\n100 questions of 2 sites" in summary(after.uri)
    page = storage.read_bytes(after.path("report.html")).decode()
    assert f'<bdi>{SITES[0]}</bdi> <span class="note">0</span>' in page


def test_verdicts_are_on_the_pairs_of_the_run_that_drew_them_also_if_a_site_was_added_since(
    runs: tuple[Run, Run],
) -> None:
    before, after = runs
    found = storage.read_json(after.path("metrics.json"))["verdicts"]
    assert (found["run_id"], found["judged"], found["on_other_pairs"]) == (before.run_id, 12, 0)
