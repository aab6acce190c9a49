"""Measures of a network: on development questions after each epoch, and on its archive when the best one is saved.

Both search the same pool: a sample of the archive by a hash of the keys, and all development questions. If there are
too few of these, titles that training does not read must find their own bodies.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from dupq import storage
from dupq.encoders import saved
from dupq.encoders.encoding import encode, rebuild
from dupq.encoders.protocol import Encoder
from dupq.encoders.saved import FEWEST_TITLES
from dupq.evaluation.known_duplicates import RANKED, retrieval
from dupq.evaluation.measures import best_accuracy
from dupq.evaluation.rankers import EncoderRanker
from dupq.job.records import TrainingFiles
from dupq.job.step import Counts
from dupq.job.table import Each, Table
from dupq.job.tasks import run_tasks
from dupq.links import Known, Split
from dupq.neighbours.embeddings import Embeddings
from dupq.report import charts
from dupq.settings.config import Settings
from dupq.stages.training.prepare import Prepared, known_in
from dupq.stages.training.words import texts_among, titles_in, vocabulary_of
from dupq.text.keys import Sites, sample_by_hash
from dupq.text.questions import TitlesAndBodies, Vocabulary
from dupq.text.token_arrays import TokenIds
from dupq.training.checkpoints import best_epoch, quality
from dupq.training.pairs import with_random_negatives

FEWEST_QUESTIONS = 10  # of the development part
TITLES_SHARE = 0.05  # of the questions with titles and bodies; at most training.development_pool
_ORDER = 3  # third number of the seed for the order of buckets


class HeldOut(NamedTuple):
    """Titles that training does not read, and the bodies among which each must find its own."""

    titles: TokenIds
    bodies: TokenIds  # first those of the titles, in their order


def has_questions(known: Known) -> bool:
    """Return whether there are enough development questions to compare epochs."""
    return len(known.split.questions_of("development")) >= FEWEST_QUESTIONS


def held_out_keys(keys: np.ndarray, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys of the questions whose titles are held out, and of those that give more bodies to search.

    Both (int64, sorted) are the same for any shards and workers. TITLES_SHARE of the questions is held out, by a hash
    of the keys. Their titles search the bodies of at most `training.development_pool` questions. Of too few questions
    none is held out.
    """
    most = settings.training.development_pool
    count = min(int(TITLES_SHARE * len(keys)), most)
    if count < FEWEST_TITLES:
        return keys[:0], keys[:0]
    titled = sample_by_hash(keys, count)
    return np.sort(titled), np.setdiff1d(sample_by_hash(keys, most), titled)


def hold_out(buckets: Iterable[TitlesAndBodies], titled: np.ndarray, others: np.ndarray) -> HeldOut:
    """Return the texts of the questions of `held_out_keys`, in the order of the buckets."""
    chosen = [[bucket.take(np.isin(bucket.keys, side)) for side in (titled, others)] for bucket in buckets]
    bodies = TokenIds.of(body for side in zip(*chosen, strict=True) for texts in side for body in texts.bodies)
    return HeldOut(TokenIds.of(title for texts, _ in chosen for title in texts.titles), bodies)


def body_map(network: Encoder, held_out: HeldOut, settings: Settings) -> float:
    """Return the mean over all titles of 1 / the rank of their own body, which counts 0 beyond rank RANKED."""
    titles, bodies = (encode(network, texts, settings.encode.batch_size) for texts in held_out)
    ranks = saved.ranks_of_bodies(titles, bodies, RANKED, network.measure)
    return float((1 / ranks).sum() / len(held_out.titles))


def development_map(network: Encoder, sequences: Mapping[int, np.ndarray], known: Known, settings: Settings) -> float:
    """Return MAP on development questions, between 0 and 1; `sequences` are token ids by key."""
    split, keys = known.split, np.array(sorted(sequences), np.int64)
    pool = np.union1d(sample_by_hash(keys, settings.training.development_pool), split.questions_of("development"))
    encoded = encode(network, [sequences[int(key)] for key in pool], settings.encode.batch_size)
    ranker = EncoderRanker([Embeddings(pool, *encoded)], network.measure)
    as_test = Split(split.questions, split.sets, np.where(split.parts == "development", "test", "train"))
    measured = retrieval({"encoder": ranker}, as_test, len(pool), settings.evaluation)
    return measured["retrieval"]["encoder"]["map"]


class TitleBuckets:
    """The titles and bodies to train on, the same for all workers. Memory: a bucket."""

    def __init__(self, titles: Table, settings: Settings, is_measured: bool) -> None:
        """Read rows of TITLES; if `is_measured` and there are enough, some are held out to measure epochs."""
        self._titles = titles
        keys = [table["key"].to_numpy() for table in Each(titles.only("key"))]
        measured = np.concatenate([np.zeros(0, np.int64), *(keys if is_measured else [])])
        self._left_out, others = held_out_keys(measured, settings)
        self.held_out = hold_out(map(titles_in, Each(titles)), self._left_out, others) if len(self._left_out) else None
        self._sizes = [len(bucket) - int(np.isin(bucket, self._left_out).sum()) for bucket in keys]

    def order(self, seed: int, epoch: int) -> list[tuple[int, float, float]]:
        """Return the buckets in the order of an epoch, each with the shares of its questions done before and after."""
        order = np.random.default_rng([seed, epoch, _ORDER]).permutation(self._titles.partitions)
        shares = np.cumsum([0, *(self._sizes[bucket] for bucket in order)]) / max(1, sum(self._sizes))
        return list(zip(order.tolist(), shares[:-1].tolist(), shares[1:].tolist(), strict=True))

    def read(self, bucket: int) -> TitlesAndBodies:
        """Return the titles and bodies of a bucket to train on."""
        texts = titles_in(self._titles.read(bucket))
        return texts.take(~np.isin(texts.keys, self._left_out))


# The last training stage: the network of the best epoch → the saved encoder, with measures on its own archive.
#
# One task holds the embeddings of a sample. It measures the fitness that later archives are compared with and, if there
# are known duplicates, the score that best separates development pairs from random ones.

PICTURE = "learning_curve.svg"


def save_encoder(
    prepared: Prepared,
    files: TrainingFiles,
    site_names: list[str],
    settings: Settings,
    questions: int,
    language: str,
    run_id: str,
) -> Counts:
    """Measure the encoder on a sample of its archive, and save it.

    `questions` is the size of the archive; `language` names its language and how it is known.
    """
    torch.set_num_threads(1)
    known = known_in(prepared.known.read(0), settings.training)
    vocabulary = vocabulary_of(prepared.words.read(0), settings)
    network = network_at(files.weights, vocabulary, settings)
    reader = saved.Reader(network, vocabulary, settings)
    uses = prepared.uses.only("key", "is_measured").read(0)
    keys = uses["key"].to_numpy()[uses["is_measured"].to_numpy()]
    texts = texts_among(Each(prepared.picked), keys)
    fitness = saved.fitness(reader, texts_among([texts], sample_by_hash(keys, saved.FITNESS_QUESTIONS)))
    threshold, accuracy = _pair_threshold(texts, reader, known)
    curve = storage.read_json(files.curve)
    best_epoch_by, _ = quality(curve[-1])
    metrics = {
        "archive_questions": questions,
        "language": language,
        "known_duplicates": {part: len(known.split.questions_of(part)) for part in saved.PARTS},  # questions
        "development_queries": len(known.split.questions_of("development")),
        "development_pair_accuracy": accuracy,
        "best_epoch": best_epoch(curve),
        "best_epoch_by": best_epoch_by,
        "not_measured": not_measured(known.split, best_epoch_by),
        "learning_curve": curve,
    }
    _write_split(files.encoder, known.split, known.wrong, Sites(site_names))
    encoder = saved.SavedEncoder(network, vocabulary, settings, threshold, fitness, metrics)
    saved.save(files.encoder, encoder, run_id)
    storage.write_bytes(storage.join(files.encoder, PICTURE), charts.picture(curve).encode())
    return {"rows_in": questions, "rows_out": 1}


def network_at(uri: str, vocabulary: Vocabulary, settings: Settings) -> Encoder:
    """Return the network with the weights in a file."""
    network = rebuild(settings.encoder, saved.read_weights(storage.read_bytes(uri), uri), uri)
    network.set_vocabulary(vocabulary.words)
    return network


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


def _pair_threshold(texts: pa.Table, reader: saved.Reader, known: Known) -> tuple[float | None, float | None]:
    """Return the score that best separates development links from as many random pairs, and the accuracy.

    Both are None without links. `texts` are those that the encoder is measured on, sorted by key.
    """
    training = reader.settings.training
    links, keys = known.split.links_of("development", known.links), texts["key"].to_numpy()
    pool = np.union1d(sample_by_hash(keys, training.development_pool), known.split.questions_of("development"))
    if not len(links) or len(pool) < 3:
        return None, None
    embedded = Embeddings(pool, *reader.encode(texts_among([texts], pool)))
    ranker = EncoderRanker([embedded], reader.network.measure)
    pairs = with_random_negatives(links, pool, known.split, 1, np.random.default_rng(training.seed))
    return best_accuracy(ranker.score(pairs.left, pairs.right), pairs.labels)


def publish(files: TrainingFiles, output: str) -> str:
    """Copy the saved encoder to a folder of its own in `output`, point latest.json there, and return the folder.

    The folder's name is the encoder's fingerprint and its training. It never changes, so that jobs go on reading an
    older encoder; only damaged files are written again.
    """
    description = saved.read_description(files.encoder)
    name = f"{description['fingerprint'][:16]}-{description['run_id'][:8]}"
    folder = storage.join(output, name)
    run_tasks("publish", _publish, [(files.encoder, folder)])
    storage.write_json(storage.join(output, "latest.json"), {"encoder": name})
    return folder


def _publish(source: str, folder: str) -> Counts:
    for file in (*reversed(saved.FILES), PICTURE):  # the description after what it describes: it is read first
        content, target = storage.read_bytes(storage.join(source, file)), storage.join(folder, file)
        if not storage.exists(target) or storage.read_bytes(target) != content:
            storage.write_bytes(target, content)
    return {}


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
