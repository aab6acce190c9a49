"""The network of the best epoch → the saved encoder, with measures on its own archive.

One task holds the embeddings of a sample. It measures the fitness that later archives are compared with and, if there
are known duplicates, the score that best separates development pairs from random ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from dupq import storage
from dupq.encoders import saved
from dupq.encoders.saved import FEWEST_TITLES
from dupq.evaluation.development import FEWEST_QUESTIONS
from dupq.evaluation.measures import best_accuracy
from dupq.evaluation.rankers import EncoderRanker
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import Counts, StepResult, step
from dupq.job.table import File, Streamed
from dupq.job.tasks import run_tasks
from dupq.kinds import JSON, columns, streamed
from dupq.links import KnownDuplicates, Split
from dupq.neighbours.embeddings import Embeddings
from dupq.settings.config import Settings
from dupq.stages.training.fit import Fitted
from dupq.stages.training.prepare import PAIRS, USES, Prepared, known_in
from dupq.stages.training.words import WORD_COUNTS, texts_among, vocabulary_of
from dupq.tables import TEXTS
from dupq.text.keys import Sites, sample_by_hash
from dupq.training.checkpoints import Epoch, best_epoch, quality
from dupq.training.pairs import with_random_negatives


@dataclass(frozen=True)
class Training:
    """What an encoder's files say of its training."""

    weights: str  # URI of the network at its best epoch
    curve: list[Epoch]
    questions: int  # of the archive
    language: str  # of the archive, and how it is known
    sites: list[str]  # in the order of keys
    run_id: str


@stage("save", version=2)
def save(run: Run, prepared: Prepared, fitted: Fitted, sites: Sites, settings: Settings, language: str) -> File:
    """Measure the encoder on a sample of its archive, and save it; return its folder.

    `language` names the archive's language and how it is known.
    """
    training = Training(fitted.weights.uri, fitted.curve, prepared.questions, language, sites.names, run.run_id)
    run.write("encoder.json", save_encoder)(
        prepared.known, prepared.words, prepared.uses, Streamed(prepared.picked), settings, training, run.folder
    )
    return File(run.folder)


@step(PAIRS, columns(WORD_COUNTS, "word"), columns(USES, "key", "is_measured"), streamed(TEXTS), makes=JSON)
def save_encoder(
    pairs: pa.Table,
    words: pa.Table,
    uses: pa.Table,
    picked: Iterator[pa.Table],
    settings: Settings,
    training: Training,
    folder: str,
) -> StepResult[saved.Description]:
    """Return an encoder's description with its measures; write its other files to `folder`."""
    torch.set_num_threads(1)
    known, vocabulary = known_in(pairs, settings.training), vocabulary_of(words, settings)
    network = saved.read_network(training.weights, vocabulary, settings)
    reader = saved.Reader(network, vocabulary, settings)
    texts = texts_among(picked, uses["key"].to_numpy()[uses["is_measured"].to_numpy()])
    sample = sample_by_hash(texts["key"].to_numpy(), saved.FITNESS_QUESTIONS)
    fitness = saved.fitness(reader, texts_among([texts], sample))
    threshold, accuracy = _pair_threshold(texts, reader, known)
    best_epoch_by, _ = quality(training.curve[-1])
    metrics = {
        "archive_questions": training.questions,
        "language": training.language,
        "known_duplicates": {part: len(known.split.questions_of(part)) for part in saved.PARTS},  # questions
        "development_queries": len(known.split.questions_of("development")),
        "development_pair_accuracy": accuracy,
        "best_epoch": best_epoch(training.curve),
        "best_epoch_by": best_epoch_by,
        "not_measured": not_measured(known.split, best_epoch_by),
        "learning_curve": training.curve,
    }
    _write_split(folder, known.split, known.wrong, Sites(training.sites))
    encoder = saved.SavedEncoder(network, vocabulary, settings, threshold, fitness, metrics)
    description = saved.save_parts(folder, encoder, training.run_id)
    return StepResult(description, {"rows_in": training.questions, "rows_out": 1})


def not_measured(split: Split, best_epoch_by: str | None) -> dict[str, str]:
    """Return for each measure that is null the reason why it could not be measured."""
    reasons: dict[str, str] = {}
    counts = {part: len(split.questions_of(part)) for part in saved.PARTS}
    if not counts["development"]:
        reason = "no question with a known duplicate to choose a threshold on"
        reasons |= dict.fromkeys(("pair_threshold", "development_pair_accuracy"), reason)
    if counts["development"] < FEWEST_QUESTIONS:
        reasons["development_map"] = (
            f"{counts['development']} development questions with known duplicates; {FEWEST_QUESTIONS} are needed"
        )
    if best_epoch_by is None:
        reasons["best_epoch_by"] = (
            f"the last epoch is kept: neither {FEWEST_QUESTIONS} development questions nor {FEWEST_TITLES} titles with "
            "bodies to set apart"
        )
    if not counts["test"]:
        reasons["test"] = "no known duplicates were kept for tests: what the encoder finds is not known"
    return reasons


def _pair_threshold(texts: pa.Table, reader: saved.Reader, known: KnownDuplicates) -> tuple[float | None, float | None]:
    """Return the score that best separates development links from as many random pairs, and the accuracy, if any."""
    training = reader.settings.training
    links, keys = known.split.links_of("development", known.links), texts["key"].to_numpy()
    pool = np.union1d(sample_by_hash(keys, training.development_pool), known.split.questions_of("development"))
    if not len(links) or len(pool) < 3:
        return None, None
    embedded = Embeddings(pool, *reader.encode(texts_among([texts], pool)))
    ranker = EncoderRanker([embedded], reader.network.measure)
    pairs = with_random_negatives(links, pool, known.split, 1, np.random.default_rng(training.seed))
    return best_accuracy(ranker.score(pairs.left, pairs.right), pairs.labels)


def _write_split(output: str, split: Split, wrong: np.ndarray, sites: Sites) -> None:
    """Write the part of each question: `train` if it is only in pairs labelled as no duplicates (`wrong`)."""
    only_wrong = np.setdiff1d(wrong, split.questions)
    numbers = np.unique(np.concatenate([split.sets, only_wrong]), return_inverse=True)[1]
    columns = [
        *sites.columns(np.concatenate([split.questions, only_wrong])),
        pa.array(numbers, pa.int64()),
        pa.array([*split.parts.tolist(), *["train"] * len(only_wrong)], pa.string()),
    ]
    storage.write_table(storage.join(output, "split.parquet"), pa.table(columns, schema=saved.SPLIT), saved.SPLIT)


def publish(encoder: str, output: str) -> str:
    """Copy the encoder in a folder to one of its own in `output`, point latest.json there, and return that folder.

    The folder's name is the encoder's fingerprint and its training. It never changes, so that jobs go on reading an
    older encoder; only damaged files are written again.
    """
    description = saved.read_description(encoder)
    name = f"{description['fingerprint'][:16]}-{description['run_id'][:8]}"
    folder = storage.join(output, name)
    run_tasks("publish", _publish, [(encoder, folder)])
    storage.write_json(storage.join(output, "latest.json"), {"encoder": name})
    return folder


def _publish(source: str, folder: str) -> Counts:
    for file in reversed(saved.FILES):  # the description after what it describes: it is read first
        content, target = storage.read_bytes(storage.join(source, file)), storage.join(folder, file)
        if not storage.exists(target) or storage.read_bytes(target) != content:
            storage.write_bytes(target, content)
    return {}
