"""Encoders that are not scored by cosine alone, from the archive to clusters and figures."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from trained import TrainedSample

from dupq import storage
from dupq.encoders.saved import read_measure
from dupq.neighbours.embeddings import embeddings_of, gathered
from dupq.neighbours.exact import pair_scores
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.evaluate import EvaluationJob, evaluate
from dupq.pipelines.train import TrainingJob, train
from dupq.text.keys import Sites

QUICK = ("training.epochs=1", "training.negatives=3")
SMALL = ("word_vectors.dimensions=30", "word_vectors.epochs=1")


@pytest.mark.parametrize(
    ("preset", "assignments"),
    [
        ("dupq", ("title_body.epochs=1",)),
        ("dos-santos-bow-cnn", (*SMALL, "encoder.units=20")),
        ("othman-lstm", SMALL),
        ("othman-gru", (*SMALL, "encoder.similarity=euclidean")),
    ],
)
def test_an_encoder_is_trained_finds_pairs_and_is_evaluated(
    preset: str, assignments: tuple[str, ...], small_sample: TrainedSample, tmp_path: Path
) -> None:
    archive, encoder = (small_sample.questions, small_sample.links), str(tmp_path / "encoder")
    train(TrainingJob(*archive, encoder, preset=preset, assignments=(*QUICK, *assignments)))
    measure = read_measure(encoder)
    if preset != "dupq":  # which chooses its weight by the development questions
        assert (measure.lexical != 0) == (preset == "dos-santos-bow-cnn")
    run = dedup(DedupJob(archive[0], encoder, str(tmp_path / "runs"), archive[1]))
    listed = storage.read_json(run.path("metrics.json"))["links"]["among_nearest"]["10"]
    assert listed > 0 or preset.startswith("othman")  # which learn next to nothing in one epoch
    assert "encoder" in evaluate(EvaluationJob(*archive, str(tmp_path / "evaluation"), encoder))

    pairs = pq.read_table(run.path("pairs"))
    pairs = pairs.filter(pc.equal(pairs["source"], "encoder"))
    (site,) = set(pairs["site_left"].to_pylist())  # so that keys are ids
    files = storage.list_files(run.path("embeddings"), ".parquet")
    embedded = gathered([embeddings_of(storage.read_table(file.uri), Sites([site]), file.uri) for file in files])
    sides = [
        embedded.take(np.searchsorted(embedded.keys, pairs[column].to_numpy()))
        for column in ("question_id_left", "question_id_right")
    ]
    assert len(pairs) > 1000
    assert pairs["similarity"].to_numpy() == pytest.approx(pair_scores(measure, *sides), rel=1e-4, abs=1e-6)
