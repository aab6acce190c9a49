"""What each stage answers on a small archive: numbers and hashes, to be compared with those of answers.json.

    python tests/golden/observe.py         writes answers.json anew

The archive is made from a seed. The encoder of the nightly job is not trained but put together, so that what a stage
answers does not depend on how another processor rounds in training.
"""

import hashlib
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from encoder_settings import QUICK_LEARNER
from riddles.grammar import write_sample

from dupq import storage
from dupq.encoders.encoding import build
from dupq.encoders.saved import SPLIT, Reader, SavedEncoder, encoder_at, fitness, load, read_weights, save
from dupq.job.run import Run
from dupq.job.stage import versions_of
from dupq.pipelines import dedup as dedup_page
from dupq.pipelines import train as train_page
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train
from dupq.settings import config
from dupq.settings.sections import EncoderSettings
from dupq.stages.ingest import VERSIONS
from dupq.text.languages import normaliser_of
from dupq.text.questions import Vocabulary, texts_table, token_ids

ANSWERS = Path(__file__).parent / "answers.json"
Answers = dict[str, dict[str, Any]]  # by job and stage


def observe(folder: Path) -> Answers:
    """The answers of all stages of ingest, training and the nightly job."""
    sample = write_sample(folder / "dump", questions=400)
    archive = str(folder / "archive")
    ingest(IngestJob((str(sample.archive),), archive, answers=True))
    trained = (
        *QUICK_LEARNER,
        "training.epochs=2",
        "word_vectors.dimensions=20",
        "encoder.units=16",
        "training.development_pool=100",
    )
    job = TrainingJob(f"{archive}/questions", f"{archive}/links", str(folder / "trained"), "bogdanova-max", trained)
    training = train(job)
    encoder = put_together(f"{archive}/questions", str(folder / "encoder"))
    joining = ("clusters.threshold=0.05", "run.keep_work=true")  # hardly a pair is sure by random vectors
    inputs = f"{archive}/questions", encoder, str(folder / "runs"), f"{archive}/links"
    run = dedup(DedupJob(*inputs, assignments=joining, reranker="none"))
    return {"ingest": {"ingest": of_ingest(archive)}, "training": of_training(training, job), "dedup": of_run(run)}


def put_together(questions: str, uri: str) -> str:
    """A weighted bag of stems over random word vectors, saved."""
    table = pq.read_table(questions).sort_by("question_id")
    keys = table["question_id"].combine_chunks().cast(pa.int64())
    settings = config.load("dupq").changed(encoder=EncoderSettings(kind="word_bag", dropout=0.2))
    texts = texts_table(keys, table["title"], table["body_html"], settings.text)
    normaliser = normaliser_of(settings.text)
    counts = Counter(word for text in texts["text"].to_pylist() for word in normaliser.all_words(text))
    vocabulary = Vocabulary(sorted(word for word, count in counts.items() if count > 1), settings.text)
    vectors = np.random.default_rng(1).normal(size=(len(vocabulary), 32)).astype(np.float32) / np.float32(32**0.5)
    network = build(settings.encoder, vectors, seed=1)
    network.prepare(list(token_ids(texts, vocabulary, settings)[0]), [])
    network.tune(None)
    found = fitness(Reader(network.eval(), vocabulary, settings), texts)
    save(uri, SavedEncoder(network, vocabulary, settings, None, found, {}), "golden")
    pq.write_table(SPLIT.empty_table(), f"{uri}/split.parquet")
    return uri


def digest(*columns: Any) -> str:
    """A hash of columns, row by row."""
    rows = zip(*(column.to_pylist() if hasattr(column, "to_pylist") else column for column in columns), strict=True)
    return hashlib.sha256(json.dumps(list(rows), default=str).encode()).hexdigest()[:16]


def of_ingest(archive: str) -> dict[str, Any]:
    """Hashes of the tables."""
    tables = {name: pq.read_table(f"{archive}/{name}") for name in ("questions", "links", "answers")}
    return {name: digest(*table.columns) for name, table in tables.items()}


def of_training(run: Run, job: TrainingJob) -> Answers:
    """Words, the split, and the learning curve."""
    split = pq.read_table(f"{encoder_at(job.output)}/split.parquet").sort_by("question_id")
    saved = load(job.output)
    start = read_weights(storage.read_bytes(run.path("work", "prepare", "start.safetensors")), run.uri)
    return {
        "texts": {"hash": of_texts(run.path("texts"))},
        "prepare": {
            "words": digest(saved.vocabulary.words),
            "split": digest(split["question_id"], split["part"]),
            "vectors": float(np.abs(start["words.weight"]).mean()),
        },
        "fit": {"losses": [row["loss"] for row in saved.metrics["learning_curve"]]},
        "save": {"fitness": saved.fitness, "pair_threshold": saved.pair_threshold},
    }


def of_texts(folder: str) -> str:
    """A hash of a table of texts."""
    return digest(*pq.read_table(folder).sort_by("key").columns)


def of_run(run: Run) -> Answers:
    """What each stage of the nightly job left."""
    verified = pq.read_table(run.path("work", "verified")).sort_by([("left", "ascending"), ("right", "ascending")])
    signatures = pq.read_table(run.path("work", "signatures")).sort_by("question_id")
    embeddings = pq.read_table(run.path("embeddings")).sort_by("question_id")
    rarities = pq.read_table(run.path("work", "terms", "rarities"))["rarity"].to_numpy()
    calibration = storage.read_json(run.path("work", "calibration", "calibration.json"))
    nearest = pq.read_table(run.path("work", "neighbours", "nearest"))
    scores = np.array([row + [0.0] * (10 - len(row)) for row in nearest["scores"].to_pylist()])
    pairs = pq.read_table(run.path("pairs"))
    probabilities = pairs.filter(pc.equal(pairs["source"], "encoder"))["probability"].to_numpy()
    clusters = pq.read_table(run.path("clusters")).sort_by("question_id")
    metrics = storage.read_json(run.path("metrics.json"))
    review = pq.read_table(run.path("review.parquet"))
    return {
        "texts": {"hash": of_texts(run.path("work", "texts"))},
        "signatures": {"hash": digest(signatures["question_id"], signatures["signature"])},
        "near_duplicates": {"hash": digest(*verified.columns)},
        "encode": {
            "vectors": np.array(embeddings["embedding"].to_pylist(), np.float64)[::40, :3].ravel().tolist(),
            "words": [len(words) for words in embeddings["words"].to_pylist()[::40]],
        },
        "terms": {"terms": int((rarities > 0).sum()), "mean_rarity": float(rarities[rarities > 0].mean())},
        "calibrate": {"model": calibration["model"], "floor": calibration["floor"]},
        "neighbours": {"mean_scores": scores.mean(axis=0).tolist()},
        "pairs": {"count": len(probabilities), "highest": np.sort(probabilities)[:-200:-20].tolist()},
        "partition": {"joined": int(pc.sum(pairs["joined"]).as_py())},
        "clusters": {
            "hash": digest(*(clusters[name] for name in ("question_id", "cluster_id", "canonical_reason"))),
            "worklist": metrics["worklist"],
        },
        "evaluate": {name: metrics[name] for name in ("links", "expected_precision")},
        "review": {"pairs": len(review)},
    }


def numbers() -> dict[str, dict[str, int]]:
    """The versions of all stages."""
    dedup_versions = versions_of(
        *(stage for stage in dedup_page.STAGES if stage.name not in ("rerank", "judge", "scopes"))
    )
    return {"ingest": VERSIONS, "training": versions_of(*train_page.STAGES), "dedup": dedup_versions}


def main() -> None:
    """Write the answers of today's code."""
    from dupq.job import cluster

    cluster.connect("local")
    with tempfile.TemporaryDirectory() as folder:
        answers = observe(Path(folder))
    content = {"versions": numbers(), "answers": answers}
    ANSWERS.write_text(json.dumps(content, indent=1, sort_keys=True, default=float) + "\n")


if __name__ == "__main__":
    sys.exit(main())
