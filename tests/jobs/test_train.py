"""Training by Ray Train, with real workers."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
from trained import TrainedSample

from dupq import storage
from dupq.encoders.description import encoder_at, read_description
from dupq.encoders.saved import load
from dupq.errors import DupqError
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train

QUICK = ("training.epochs=2", "word_vectors.dimensions=50", "word_vectors.epochs=1")


def train_sample(sample: TrainedSample, output: Path, workers: int) -> dict[str, np.ndarray]:
    """A network that forgives rounding.

    With each of its first weights 2^-23 of itself off, the loss comes out 1.3e-8 off at most and a weight 2.4e-7. At a
    learning rate that is 2 % off they are 8e-4 and 3e-2 off. Sums that saturate tanh (bogdanova-sum) amplify 2^-23 to
    3e-5 of the loss and 3e-2 of a weight, as much as 2 % of the learning rate do.
    """
    settings = (*QUICK, "training.batch_size=16", "encoder.word_vectors=learned", "encoder.maximum_tokens=30")
    train(TrainingJob(sample.questions, sample.links, str(output), "othman-gru", settings, workers))
    return safetensors.numpy.load((Path(encoder_at(str(output))) / "model.safetensors").read_bytes())


@pytest.mark.ray
def test_two_workers_learn_what_one_learns_and_a_rerun_does_nothing(
    trained_sample: TrainedSample, tmp_path: Path
) -> None:
    one = train_sample(trained_sample, tmp_path / "one", workers=1)
    two = train_sample(trained_sample, tmp_path / "two", workers=2)
    curves = [read_description(f"{tmp_path}/{name}")["metrics"]["learning_curve"] for name in ("one", "two")]
    assert [row["loss"] for row in curves[0]] == pytest.approx([row["loss"] for row in curves[1]], rel=1e-4)
    # 46 steps, whose gradients are summed over 16 pairs in another order: 46 * 16 roundings of 2^-24 are 4e-5
    for name, values in one.items():
        assert values == pytest.approx(two[name], abs=1e-4), name
    for name in ("one", "two"):  # so what is lost is made again
        (record,) = (tmp_path / name / "work").glob("*/stages/fit.json")
        outputs = storage.read_json(str(record))["outputs"]
        assert outputs.keys() >= {"best.safetensors", "learning_curve.json", "training.json"}, name
    before = Path(encoder_at(str(tmp_path / "one")), "encoder.json").stat().st_mtime_ns
    train_sample(trained_sample, tmp_path / "one", workers=1)
    assert Path(encoder_at(str(tmp_path / "one")), "encoder.json").stat().st_mtime_ns == before


def test_the_encoder_tells_how_good_each_epoch_was_and_which_questions_it_saw(trained_sample: TrainedSample) -> None:
    metrics = storage.read_json(f"{trained_sample.encoder}/encoder.json")["metrics"]
    assert [row["epoch"] for row in metrics["learning_curve"]] == list(range(1, 7))
    assert metrics["development_pair_accuracy"] > 0.8
    split = pq.read_table(f"{trained_sample.encoder}/split.parquet").to_pandas()
    assert set(split.part) == {"train", "development", "test"}
    assert split.groupby("duplicates").part.nunique().max() == 1


@pytest.mark.realdata
@pytest.mark.ray
def test_a_small_real_site_goes_from_dump_to_clusters(shared_data: Path, tmp_path: Path) -> None:
    dump = str(shared_data / "dumps" / "bicycles.meta.stackexchange.com.7z")
    counts = ingest(IngestJob((dump,), str(tmp_path)))["bicycles.meta.stackexchange.com"]
    assert counts["questions"] == 453
    questions, links = str(tmp_path / "questions"), str(tmp_path / "links")
    train(TrainingJob(questions, links, str(tmp_path / "encoder"), assignments=QUICK))
    run = dedup(DedupJob(questions, str(tmp_path / "encoder"), str(tmp_path / "runs"), links))
    assert len(pq.read_table(run.path("clusters"))) == 453
    known = storage.read_json(run.path("metrics.json"))["known_duplicates"]
    assert known["retrieval"]["bm25"]["accuracy_at_10"] > 0


def bread(folder: Path) -> tuple[str, str]:
    """An archive of 60 questions without links; the URIs of its questions and links."""
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


@pytest.mark.parametrize("links", [True, False])
def test_without_duplicates_an_encoder_learns_from_titles_and_bodies_and_a_run_goes_by_the_prior(
    links: bool, tmp_path: Path
) -> None:
    questions, without_rows = bread(tmp_path)
    encoder = str(tmp_path / "encoder")
    settings = ("title_body.epochs=2", "word_vectors.minimum_count=1", "word_vectors.dimensions=20")
    train(TrainingJob(questions, without_rows if links else None, encoder, "dupq", settings))
    made = load(encoder)
    assert made.pair_threshold is None
    assert [row["development_map"] for row in made.metrics["learning_curve"]] == [None, None]
    assert (made.metrics["best_epoch"], made.metrics["best_epoch_by"]) == (2, None)  # six titles tell no epochs apart
    assert "the last epoch is kept" in made.metrics["not_measured"]["best_epoch_by"]
    assert made.fitness.questions == 60
    assert made.fitness.bodies_found is not None
    assert made.fitness.unknown_words == 0
    run = dedup(DedupJob(questions, encoder, str(tmp_path / "runs"), without_rows if links else None))
    metrics = storage.read_json(run.path("metrics.json"))
    assert metrics["calibration"]["development_links"] == 0
    assert metrics["known_duplicates"] is None
    assert len(pq.read_table(run.path("clusters"))) == 60


def test_an_encoder_that_learns_from_duplicates_only_needs_some(tmp_path: Path) -> None:
    questions, links = bread(tmp_path)
    with pytest.raises(
        DupqError, match=r"links: no links in the tables: preset bogdanova-max .* take one of the presets"
    ):
        train(TrainingJob(questions, links, str(tmp_path / "encoder"), "bogdanova-max"))
    (place,) = Path(links).rglob("*.parquet")
    row = {"link_id": 1, "question_id": 6, "related_id": 7, "link_type": "related", "creation_date": None}
    related = tmp_path / "related" / place.parent.name
    related.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([row], schema=pq.read_schema(place)), related / place.name)
    with pytest.raises(DupqError, match=r"0 sets of known duplicates.*at least 3.*preset.*such as dupq"):
        train(TrainingJob(questions, str(related.parent), str(tmp_path / "encoder"), "bogdanova-max"))
