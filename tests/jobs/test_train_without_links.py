"""The sample archive without a known duplicate, from its dump to a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import py7zr
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline import without_ray
from riddles.grammar import write_sample

from dupq import storage
from dupq.encoders.encoding import learns_without_links, presets_without_links
from dupq.encoders.saved import Description, read_description
from dupq.errors import DupqError, SettingError
from dupq.evaluation import development
from dupq.job.run import Run
from dupq.pipelines.train import FromDumpJob, TrainingJob, from_dump, train
from dupq.report.summary import summary
from dupq.settings import config

QUESTIONS = 600
QUICK = ("title_body.epochs=3", "title_body.batch_size=90", "training.checkpoint_seconds=0")


class Archive(NamedTuple):
    questions: str
    links: str
    encoder: str
    run: Run


@pytest.fixture(scope="module", autouse=True)
def _more_titles_set_apart() -> Iterator[None]:
    """Hold out more titles than usual: the usual share of so few questions is too small to measure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(development, "TITLES_SHARE", 0.1)
        yield


@pytest.fixture(scope="module")
@without_ray()
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The archive of the sample's dump without PostLinks.xml, by `from_dump`."""
    folder = tmp_path_factory.mktemp("unlinked")
    with py7zr.SevenZipFile(write_sample(folder / "packed", QUESTIONS).archive) as packed:
        packed.extractall(folder / "dump")
    (links,) = (folder / "dump").rglob("PostLinks.xml")
    links.unlink()
    out = folder / "out"
    run = from_dump(FromDumpJob((str(links.parent),), str(out), assignments=QUICK))
    return Archive(f"{out}/questions", f"{out}/links", f"{out}/encoder", run)


def trained(archive: Archive, output: Path, links: str | None = None, *more: str) -> Description:
    train(TrainingJob(archive.questions, links, str(output), assignments=(*QUICK, *more)))
    return read_description(str(output))


def test_titles_that_training_does_not_read_choose_the_epoch(archive: Archive) -> None:
    metrics = read_description(archive.encoder)["metrics"]
    found = [row["development_body_map"] for row in metrics["learning_curve"]]
    assert len(found) == 3
    assert all(0 < value <= 1 for value in found)
    assert metrics["best_epoch"] == 1 + found.index(max(found))
    assert metrics["best_epoch_by"] == "development_body_map"
    assert [row["development_map"] for row in metrics["learning_curve"]] == [None] * 3
    assert {row["examples"] for row in metrics["learning_curve"]} == {598 - 59}  # two questions have no body


def test_an_encoder_says_what_it_cannot_tell(archive: Archive) -> None:
    description = read_description(archive.encoder)
    metrics = description["metrics"]
    assert description["pair_threshold"] is None
    assert metrics["known_duplicates"] == {"train": 0, "development": 0, "test": 0}
    assert metrics["development_pair_accuracy"] is None
    reasons = metrics["not_measured"]
    assert reasons.keys() == {"pair_threshold", "development_pair_accuracy", "development_map", "test"}
    assert reasons["development_map"] == "0 development questions with known duplicates; 10 are needed"


def test_a_run_goes_by_the_prior_and_says_so(archive: Archive) -> None:
    metrics = storage.read_json(archive.run.path("metrics.json"))
    assert metrics["calibration"]["development_sets"] == metrics["calibration"]["own_share"] == 0
    assert metrics["not_measured"].keys() == {"links", "calibration"}
    assert pq.read_table(archive.run.path("clusters")).num_rows == QUESTIONS
    page = storage.read_bytes(archive.run.path("report.html")).decode()
    assert "What this run cannot tell" in page
    assert all(reason in page for reason in metrics["not_measured"].values())
    said = summary(archive.run.uri)
    assert "other sites alone: nobody has marked duplicates here" in said
    assert "are duplicates (an estimate, a guess from other sites)" in said
    assert "MISSED    not known: nobody has marked duplicates here that dupq could be tested on" in said


@pytest.mark.usefixtures("quick")
def test_a_table_without_duplicates_gives_the_encoder_of_none(archive: Archive, tmp_path: Path) -> None:
    """The fixture's encoder was trained with a links table without rows."""
    (place,) = Path(archive.links).rglob("*.parquet")
    assert pq.read_metadata(place).num_rows == 0
    ids = pq.read_table(archive.questions)["question_id"].to_pylist()
    row = {"link_id": 1, "question_id": ids[0], "related_id": ids[1], "link_type": "related"}
    rows = pa.Table.from_pylist([row | {"creation_date": None}], schema=pq.read_schema(place))
    related = tmp_path / "related" / place.parent.name / place.name
    related.parent.mkdir(parents=True)
    pq.write_table(rows, related)
    related_only = trained(archive, tmp_path / "encoder", str(tmp_path / "related"))
    assert {**related_only, "run_id": ""} == {**read_description(archive.encoder), "run_id": ""}
    with pytest.raises(DupqError, match=r"0 sets of known duplicates.*at least 3.*preset.*such as dupq"):
        train(TrainingJob(archive.questions, str(tmp_path / "related"), str(tmp_path / "encoder"), "bogdanova-max"))


@pytest.mark.parametrize("preset", config.preset_names())
def test_presets_that_learn_from_duplicates_only_are_refused_in_one_line(
    preset: str, archive: Archive, tmp_path: Path
) -> None:
    papers = ("bogdanova", "dos-santos", "mappsent", "othman")
    assert (preset not in presets_without_links()) == preset.startswith(papers)
    if preset in presets_without_links():
        return
    for links, missing in ((None, "neither --links nor --pairs"), (archive.links, "no links in the tables")):
        with pytest.raises(SettingError, match=rf"{missing}: preset {preset} learns from .*presets .* dupq, ") as error:
            TrainingJob(archive.questions, links, str(tmp_path), preset).check()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(("epochs", "learns"), [(0, False), (1, True)])
def test_a_teacher_without_epochs_teaches_nothing(epochs: int, learns: bool) -> None:
    changes = ["title_body.epochs=0", "teacher.encoder=/some/encoder", f"teacher.epochs={epochs}"]
    assert learns_without_links(config.load("dupq", changes)) == learns
