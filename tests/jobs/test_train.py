"""Small archives, with links and without, from their dumps to encoders and runs."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trained import TrainedSample

from dupq import storage
from dupq.encoders.saved import load
from dupq.errors import DupqError
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train

QUICK = ("training.epochs=2", "title_body.epochs=2")


def test_the_encoder_tells_how_good_each_epoch_was_and_which_questions_it_saw(trained_sample: TrainedSample) -> None:
    metrics = storage.read_json(f"{trained_sample.encoder}/encoder.json")["metrics"]
    assert [row["epoch"] for row in metrics["learning_curve"]] == list(range(1, 7))
    assert metrics["development_pair_accuracy"] > 0.8
    split = pq.read_table(f"{trained_sample.encoder}/split.parquet").to_pandas()
    assert set(split.part) == {"train", "development", "test"}
    assert split.groupby("duplicates").part.nunique().max() == 1


@pytest.mark.realdata
def test_a_small_real_site_goes_from_dump_to_clusters(shared_data: Path, tmp_path: Path) -> None:
    dump = str(shared_data / "dumps" / "bicycles.meta.stackexchange.com.7z")
    counts = ingest(IngestJob((dump,), str(tmp_path)))["bicycles.meta.stackexchange.com"]
    assert counts["questions"] == 453
    questions, links = str(tmp_path / "questions"), str(tmp_path / "links")
    train(TrainingJob(questions, links, str(tmp_path / "encoder"), assignments=QUICK))
    run = dedup(DedupJob(questions, str(tmp_path / "encoder"), str(tmp_path / "runs"), links))
    assert len(pq.read_table(run.path("clusters"))) == 453
    assert storage.read_json(run.path("metrics.json"))["links"]["among_nearest"]["10"] > 0


def bread(folder: Path) -> tuple[str, str]:
    """Write an archive of 60 questions without links, and return the URIs of its questions and links."""
    site = folder / "bread.example.com"
    site.mkdir()
    words = ["rye", "wheat", "oats", "salt", "yeast", "oven", "stone", "crust", "crumb", "water"]
    rows = "".join(
        f'<row Id="{i}" PostTypeId="1" Title="flat {words[i % 10]} bread with {words[i // 6 - 1]}" '
        f'Body="The {words[i % 10]} rises with {words[i // 6 - 1]} and {words[i % 7]} overnight." />\n'
        for i in range(6, 66)
    )
    (site / "Posts.xml").write_text(f'<?xml version="1.0" encoding="utf-8"?>\n<posts>\n{rows}</posts>\n')
    ingest(IngestJob((str(site),), str(folder / "out")))
    return f"{folder}/out/questions", f"{folder}/out/links"


def test_where_too_few_titles_tell_epochs_apart_the_last_one_is_kept(tmp_path: Path) -> None:
    encoder = str(tmp_path / "encoder")
    settings = ("title_body.epochs=2", "word_vectors.minimum_count=1")
    train(TrainingJob(bread(tmp_path)[0], None, encoder, "dupq", settings))
    made = load(encoder)
    assert (made.metrics["best_epoch"], made.metrics["best_epoch_by"]) == (2, None)  # six titles tell no epochs apart
    assert "the last epoch is kept" in made.metrics["not_measured"]["best_epoch_by"]
    assert (made.fitness["questions"], made.fitness["unknown_words"]) == (60, 0)


def test_an_encoder_that_learns_from_duplicates_only_needs_some(tmp_path: Path) -> None:
    questions, links = bread(tmp_path)
    (place,) = Path(links).rglob("*.parquet")
    row = {"link_id": 1, "question_id": 6, "related_id": 7, "link_type": "related", "creation_date": None}
    related = tmp_path / "related" / place.parent.name
    related.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([row], schema=pq.read_schema(place)), related / place.name)
    with pytest.raises(DupqError, match=r"0 sets of known duplicates.*at least 3.*preset.*such as dupq"):
        train(TrainingJob(questions, str(related.parent), str(tmp_path / "encoder"), "bogdanova-max"))
