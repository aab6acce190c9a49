"""How good a network is after an epoch: MAP on development questions, and where it is asked for accuracy on pairs.

Both over the same pool: some questions of the archive by a hash of their keys, and all development questions. Where
there are too few of these, titles that training does not read must find their own bodies.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dupq.evaluation.known_duplicates import RANKED, chosen
from dupq.evaluation.measures import best_accuracy
from dupq.links.known import Known
from dupq.links.split import Split
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings
from dupq.text.token_ids import TokenIds

if TYPE_CHECKING:
    from dupq.encoders.protocol import Encoder
    from dupq.evaluation.rankers import EncoderRanker
    from dupq.training.title_body import TitlesAndBodies

FEWEST_QUESTIONS = 10  # of the development part
FEWEST_TITLES = 50  # as of dupq/encoders/fitness.py
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
        """Whether there is enough to tell one epoch from another."""
        return self.apart is not None or has_questions(self.known)

    @property
    def names(self) -> tuple[str, ...]:
        """The measures, as the learning curve names them."""
        if self.apart is not None:
            return ("development_body_map",)
        if self.settings.training.best_epoch == "accuracy":
            return ("development_map", "development_accuracy")
        return ("development_map",)

    def measure(self, network: "Encoder") -> dict[str, float]:
        """The measures of the network as it is, between 0 and 1, by name."""
        if self.apart is not None:
            return {"development_body_map": body_map(network, self.apart, self.settings)}
        training = self.settings.training
        ranker, pool = _ranker(network, self.sequences, self.known, self.settings)
        found = {"development_map": _map(ranker, pool, self.known.split, self.settings)}
        if training.best_epoch == "accuracy":
            found["development_accuracy"] = best_accuracy(*scored_pairs(ranker, pool, self.known, training))[1]
        return found


def has_questions(known: Known) -> bool:
    """Whether there are enough development questions to tell one epoch from another."""
    return len(known.split.questions_of("development")) >= FEWEST_QUESTIONS


class KeysApart(NamedTuple):
    """The questions of TitlesApart (int64, sorted): those of the titles, and those that only bodies are of."""

    own: np.ndarray
    others: np.ndarray


def keys_apart(keys: np.ndarray, settings: Settings) -> KeysApart | None:
    """Which of the questions with titles and bodies epochs are measured by: the same for any shards and workers.

    Set apart is TITLES_SHARE of the questions, by a hash of their keys. Their titles look for their
    bodies among those of at most `training.development_pool` questions. Of too few questions none is set apart.
    """
    most = settings.training.development_pool
    count = min(int(TITLES_SHARE * len(keys)), most)
    if count < FEWEST_TITLES:
        return None
    own = chosen(keys, count)
    return KeysApart(np.sort(own), np.setdiff1d(chosen(keys, most), own))


def set_apart(buckets: Iterable["TitlesAndBodies"], keys: KeysApart) -> TitlesApart:
    """The titles and bodies of `keys`, in the order in which they are in `buckets`."""
    some = [(bucket.among(keys.own), bucket.among(keys.others)) for bucket in buckets]
    own = [texts for texts, _ in some]
    bodies = [texts.bodies for texts in [*own, *(others for _, others in some)]]
    return TitlesApart(TokenIds.joined(texts.titles for texts in own), TokenIds.joined(bodies))


def body_map(network: "Encoder", apart: TitlesApart, settings: Settings) -> float:
    """The mean over all titles of 1 / the rank of their own body; 0 for one not among the first RANKED."""
    from dupq.encoders.encode import encode
    from dupq.neighbours.embeddings import Embeddings
    from dupq.neighbours.search import top_k

    rows = settings.encode.batch_size
    titles, bodies = (encode(network, texts, rows) for texts in apart)
    numbers = np.arange(len(apart.bodies))
    queries = Embeddings(2 * numbers[: len(apart.titles)], *titles)  # no text is its own neighbour, so other keys
    found = top_k(queries, [Embeddings(2 * numbers + 1, *bodies)], RANKED, network.measure)
    return float((1 / found.ranks[found.neighbours == found.queries + 1]).sum() / len(apart.titles))


def development_map(network: "Encoder", sequences: Mapping[int, np.ndarray], known: Known, settings: Settings) -> float:
    """MAP on development questions, between 0 and 1; `sequences` are token ids by key."""
    return _map(*_ranker(network, sequences, known, settings), known.split, settings)


def _ranker(
    network: "Encoder", sequences: Mapping[int, np.ndarray], known: Known, settings: Settings
) -> tuple["EncoderRanker", np.ndarray]:
    """The pool (keys, ascending), as the network encodes it."""
    from dupq.encoders.encode import encode
    from dupq.evaluation.rankers import EncoderRanker
    from dupq.neighbours.embeddings import Embeddings

    everything = np.array(sorted(sequences), np.int64)
    pool = np.union1d(chosen(everything, settings.training.development_pool), known.split.questions_of("development"))
    encoded = encode(network, [sequences[int(key)] for key in pool], settings.encode.batch_size)
    return EncoderRanker([Embeddings(pool, *encoded)], network.measure), pool


def _map(ranker: "EncoderRanker", pool: np.ndarray, split: Split, settings: Settings) -> float:
    from dupq.evaluation.known_duplicates import retrieval

    as_test = Split(split.questions, split.sets, np.where(split.parts == "development", "test", "train"))
    measured = retrieval({"encoder": ranker}, as_test, len(pool), settings.evaluation)
    return measured["retrieval"]["encoder"]["map"]


def scored_pairs(
    ranker: "EncoderRanker", pool: np.ndarray, known: Known, training: TrainingSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of the development links and as many random pairs of `pool`, the same ones each time."""
    from dupq.training.pairs import with_random_negatives

    links = known.split.links_of("development", known.links)
    generator = np.random.default_rng(training.seed)
    pairs = with_random_negatives(links, pool, known.split, 1, generator, kind=training.negative_pairs)
    return ranker.score(pairs.left, pairs.right), pairs.labels
