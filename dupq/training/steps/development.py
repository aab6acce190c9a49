"""How good a network is: after each epoch on development questions, and at last, when the best one is saved with
measures on its own archive.

Both over the same pool: some questions of the archive by a hash of their keys, and all development questions. Where
there are too few of these, titles that training does not read must find their own bodies.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.encoders.saved import FILES, FITNESS_QUESTIONS, PARTS, SPLIT, read_description
from dupq.evaluation.known_duplicates import RANKED, chosen
from dupq.evaluation.measures import best_accuracy
from dupq.job.step import Counts
from dupq.job.table import Each, Table
from dupq.job.tasks import Report, run_tasks
from dupq.links import Known, Split
from dupq.report import charts
from dupq.runs.records import TrainingFiles
from dupq.settings.config import Settings
from dupq.text.keys import Sites
from dupq.text.questions import Vocabulary
from dupq.text.token_arrays import TokenIds
from dupq.training.steps.prepare import Prepared, known_in
from dupq.training.steps.words_and_ids import texts_among, titles_in, vocabulary_of

if TYPE_CHECKING:
    from dupq.encoders.protocol import Encoder
    from dupq.encoders.saved import Reader
    from dupq.training.pairs import TitlesAndBodies

FEWEST_QUESTIONS = 10  # of the development part
FEWEST_TITLES = 50  # as of dupq/encoders/saved.py
TITLES_SHARE = 0.05  # of the questions with titles and bodies, at most training.development_pool


class TitlesApart(NamedTuple):
    """Titles that training does not read, and the bodies among which each must find its own."""

    titles: TokenIds
    bodies: TokenIds  # first those of the titles, in their order


@dataclass(frozen=True)
class Development:
    """What epochs are told apart by: development questions, or else titles and bodies, or nothing."""

    known: Known
    sequences: Mapping[int, np.ndarray]  # token ids by key
    apart: TitlesApart | None
    settings: Settings

    @property
    def can_tell(self) -> bool:
        """Return whether there is enough to tell one epoch from another."""
        return self.apart is not None or has_questions(self.known)

    @property
    def name(self) -> str:
        """The measure, as the learning curve names it."""
        return "development_map" if self.apart is None else "development_body_map"

    def measure(self, network: "Encoder") -> float:
        """Return the measure of the network as it is, between 0 and 1."""
        if self.apart is not None:
            return body_map(network, self.apart, self.settings)
        return development_map(network, self.sequences, self.known, self.settings)


def has_questions(known: Known) -> bool:
    """Return whether there are enough development questions to tell one epoch from another."""
    return len(known.split.questions_of("development")) >= FEWEST_QUESTIONS


def keys_apart(keys: np.ndarray, settings: Settings) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the questions that epochs are measured by: those of the titles, and those that only bodies are of.

    Both are keys (int64, sorted), the same for any shards and workers.
    TITLES_SHARE of the questions is set apart, by a hash of their keys. Their titles look for their bodies among those
    of at most `training.development_pool` questions. Of too few questions none is set apart.
    """
    most = settings.training.development_pool
    count = min(int(TITLES_SHARE * len(keys)), most)
    if count < FEWEST_TITLES:
        return None
    own = chosen(keys, count)
    return np.sort(own), np.setdiff1d(chosen(keys, most), own)


def set_apart(buckets: Iterable["TitlesAndBodies"], own: np.ndarray, others: np.ndarray) -> TitlesApart:
    """Return the titles and bodies of what `keys_apart` gives, in the order in which they are in `buckets`."""
    some = [(bucket.among(own), bucket.among(others)) for bucket in buckets]
    titles = TokenIds.concatenated(of_own.titles for of_own, _ in some)
    bodies = TokenIds.concatenated(texts.bodies for side in zip(*some, strict=True) for texts in side)
    return TitlesApart(titles, bodies)


def body_map(network: "Encoder", apart: TitlesApart, settings: Settings) -> float:
    """Return the mean over all titles of 1 / the rank of their own body; 0 for one not among the first RANKED."""
    from dupq.encoders.encoding import encode
    from dupq.neighbours.embeddings import Embeddings
    from dupq.neighbours.tiles import top_k

    rows = settings.encode.batch_size
    titles, bodies = (encode(network, texts, rows) for texts in apart)
    numbers = np.arange(len(apart.bodies))
    queries = Embeddings(2 * numbers[: len(apart.titles)], *titles)  # no text is its own neighbour, so other keys
    found = top_k(queries, [Embeddings(2 * numbers + 1, *bodies)], RANKED, network.measure)
    return float((1 / found.ranks[found.neighbours == found.queries + 1]).sum() / len(apart.titles))


def development_map(network: "Encoder", sequences: Mapping[int, np.ndarray], known: Known, settings: Settings) -> float:
    """Return MAP on development questions, between 0 and 1; `sequences` are token ids by key."""
    from dupq.encoders.encoding import encode
    from dupq.evaluation.known_duplicates import retrieval
    from dupq.evaluation.rankers import EncoderRanker
    from dupq.neighbours.embeddings import Embeddings

    split, everything = known.split, np.array(sorted(sequences), np.int64)
    pool = np.union1d(chosen(everything, settings.training.development_pool), split.questions_of("development"))
    encoded = encode(network, [sequences[int(key)] for key in pool], settings.encode.batch_size)
    ranker = EncoderRanker([Embeddings(pool, *encoded)], network.measure)
    as_test = Split(split.questions, split.sets, np.where(split.parts == "development", "test", "train"))
    measured = retrieval({"encoder": ranker}, as_test, len(pool), settings.evaluation)
    return measured["retrieval"]["encoder"]["map"]


_ORDER = 3  # the third number of the seed of the order of buckets


class TitleBuckets:
    """The titles and bodies that are trained on: the same for all workers. Memory: a bucket."""

    def __init__(self, titles: Table, settings: Settings, is_measured: bool) -> None:
        """Those of a table of TITLES; `is_measured`: some are set apart to measure epochs by, if there are enough."""
        self._titles, self._count = titles, titles.partitions
        keys = [table["key"].to_numpy() for table in Each(titles.only("key"))]
        apart = keys_apart(np.concatenate([np.zeros(0, np.int64), *keys]), settings) if is_measured else None
        self._left_out = np.zeros(0, np.int64) if apart is None else apart[0]
        self._sizes = [len(own) - int(np.isin(own, self._left_out).sum()) for own in keys]
        self.apart: TitlesApart | None = None if apart is None else set_apart(map(titles_in, Each(titles)), *apart)

    def order(self, seed: int, epoch: int) -> list[tuple[int, float, float]]:
        """Return the buckets of an epoch in their order, and which shares of its questions end before and with each."""
        order = np.random.default_rng([seed, epoch, _ORDER]).permutation(self._count)
        shares = np.cumsum([0, *(self._sizes[bucket] for bucket in order)]) / max(1, sum(self._sizes))
        return list(zip(order.tolist(), shares[:-1].tolist(), shares[1:].tolist(), strict=True))

    def read(self, bucket: int) -> "TitlesAndBodies":
        """Return what is trained on of a bucket."""
        found = titles_in(self._titles.read(bucket))
        return found.take(np.flatnonzero(~np.isin(found.keys, self._left_out))) if len(self._left_out) else found


# The last training stage: the network at its best epoch → the saved encoder, with measures on its own
# archive.
#
# One task. It holds the embeddings of a sample: to measure the fitness that later archives are compared with, and where
# there are known duplicates, the score that best separates development pairs from random ones.

PICTURE = "learning_curve.svg"


class About(NamedTuple):
    """What an encoder's description says of its training."""

    questions: int  # of the archive
    language: str  # and how it is known
    run_id: str


def save_encoder(prepared: Prepared, files: TrainingFiles, sites: Sites, settings: Settings, about: About) -> Report:
    """Measure the encoder on a sample of its archive, and save it."""
    return run_tasks("save", _save, [(prepared, files, sites.names, settings, about)])


def _save(prepared: Prepared, files: TrainingFiles, site_names: list[str], settings: Settings, about: About) -> Counts:
    import torch

    from dupq.encoders.saved import Reader, SavedEncoder, fitness, save
    from dupq.training.checkpoints import Progress, measured_by

    torch.set_num_threads(1)
    known = known_in(prepared.known.read(0), settings.training)
    vocabulary = vocabulary_of(prepared.words.read(0), settings)
    network = network_at(files.weights, vocabulary, settings)
    reader = Reader(network, vocabulary, settings)
    uses = prepared.uses.only("key", "is_measured").read(0)
    keys = uses["key"].to_numpy()[uses["is_measured"].to_numpy()]  # those that a hash chooses are chosen of all
    texts = texts_among(Each(prepared.picked), keys)
    found = fitness(reader, texts_among([texts], chosen(keys, FITNESS_QUESTIONS)))
    threshold, accuracy = _pair_threshold(texts, reader, known)
    curve = storage.read_json(files.curve)
    metrics = {
        "archive_questions": about.questions,
        "language": about.language,
        "known_duplicates": {part: len(known.split.questions_of(part)) for part in PARTS},  # questions
        "development_queries": len(known.split.questions_of("development")),
        "development_pair_accuracy": accuracy,
        "best_epoch": Progress(curve).best,
        "best_epoch_by": measured_by(curve[-1]),
        "not_measured": not_measured(known.split, measured_by(curve[-1])),
        "learning_curve": curve,
    }
    _write_split(files.encoder, known.split, known.wrong, Sites(site_names))
    save(files.encoder, SavedEncoder(network, vocabulary, settings, threshold, found, metrics), about.run_id)
    picture = charts.picture(curve)
    storage.write_bytes(storage.join(files.encoder, PICTURE), picture.encode())
    return {"rows_in": about.questions, "rows_out": 1}


def network_at(uri: str, vocabulary: Vocabulary, settings: Settings) -> "Encoder":
    """Return the network whose tensors are in a file."""
    from dupq.encoders.encoding import rebuild
    from dupq.encoders.saved import read_weights

    network = rebuild(settings.encoder, read_weights(storage.read_bytes(uri), uri), uri)
    network.set_vocabulary(vocabulary.words)
    return network


def not_measured(split: Split, best_epoch_by: str | None) -> dict[str, str]:
    """Return why what is null of an encoder's measures could not be measured, by the name of the measure."""
    found: dict[str, str] = {}
    counts = {part: len(split.questions_of(part)) for part in PARTS}
    if not counts["development"]:
        reason = "no question with a known duplicate to choose a threshold on"
        found |= dict.fromkeys(("pair_threshold", "development_pair_accuracy"), reason)
    if counts["development"] < FEWEST_QUESTIONS:
        found["development_map"] = (
            f"{counts['development']} development questions with known duplicates; {FEWEST_QUESTIONS} are needed"
        )
    if best_epoch_by is None:
        found["best_epoch_by"] = (
            f"the last epoch is kept: neither {FEWEST_QUESTIONS} development questions nor {FEWEST_TITLES} titles with "
            "bodies to set apart"
        )
    if not counts["test"]:
        found["test"] = "no known duplicates were kept for tests: what the encoder finds is not known"
    return found


def _pair_threshold(texts: pa.Table, reader: "Reader", known: Known) -> tuple[float | None, float | None]:
    """Return the score that best tells development links from as many random pairs, and how well; None without links.

    `texts` are those that the encoder is measured on, sorted by key.
    """
    from dupq.evaluation.rankers import EncoderRanker
    from dupq.neighbours.embeddings import Embeddings
    from dupq.training.pairs import with_random_negatives

    training = reader.settings.training
    links, keys = known.split.links_of("development", known.links), texts["key"].to_numpy()
    pool = np.union1d(chosen(keys, training.development_pool), known.split.questions_of("development"))
    if not len(links) or len(pool) < 3:
        return None, None
    embedded = Embeddings(pool, *reader.encode(texts_among([texts], pool))[0])
    ranker = EncoderRanker([embedded], reader.network.measure)
    pairs = with_random_negatives(links, pool, known.split, 1, np.random.default_rng(training.seed))
    return best_accuracy(ranker.score(pairs.left, pairs.right), pairs.labels)


def publish(files: TrainingFiles, output: str) -> str:
    """Copy the saved encoder to a folder of its own in `output`, and point latest.json there; returns the folder.

    A folder is named by its encoder's fingerprint and its training, and is never changed: whoever reads an older
    encoder goes on reading it. What is damaged in it is written again.
    """
    description = read_description(files.encoder)
    name = f"{description['fingerprint'][:16]}-{description['run_id'][:8]}"
    folder = storage.join(output, name)
    run_tasks("publish", _publish, [(files.encoder, folder)])
    storage.write_json(storage.join(output, "latest.json"), {"encoder": name})
    return folder


def _publish(source: str, folder: str) -> Counts:
    for file in (*reversed(FILES), PICTURE):  # the description, which readers look for first, after what it describes
        content, place = storage.read_bytes(storage.join(source, file)), storage.join(folder, file)
        if not storage.exists(place) or storage.read_bytes(place) != content:
            storage.write_bytes(place, content)
    return {}


def _write_split(output: str, split: Split, wrong: np.ndarray, sites: Sites) -> None:
    """Write which part each question is in: `train` if it is only in pairs labelled as no duplicates (`wrong`)."""
    alone = np.setdiff1d(wrong, split.questions)
    numbers = np.unique(np.concatenate([split.sets, alone]), return_inverse=True)[1]
    columns = [
        *sites.columns(np.concatenate([split.questions, alone])),
        pa.array(numbers, pa.int64()),
        pa.array([*split.parts.tolist(), *["train"] * len(alone)], pa.string()),
    ]
    storage.write_table(storage.join(output, "split.parquet"), pa.table(columns, schema=SPLIT), SPLIT)
