"""Encoders trained and compared on a run's archive, in memory and without Ray: `Run.trials`.

For archives of some ten thousand questions, and for finding out what is worth a whole training (`dupq train`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dupq.api.encoders import TextEncoder
from dupq.api.inputs import check_count
from dupq.encoders.description import encoder_at, read_split
from dupq.encoders.encoding import learns_without_links, network_settings
from dupq.encoders.text_reader import Reader
from dupq.errors import DupqError, SettingError
from dupq.evaluation.known_duplicates import chosen, unseen_split
from dupq.evaluation.measures import Ranker, average_precision, retrieval_measures
from dupq.evaluation.rankers import BM25, EncoderRanker
from dupq.links.link_files import known_duplicates
from dupq.links.split import Split, split_links
from dupq.neighbours.embeddings import Embeddings
from dupq.runs.reader import Run
from dupq.runs.table_view import TableView, in_memory
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.settings.training import TrainingSettings
from dupq.text.keys import Sites
from dupq.text.normalisation import normaliser_of
from dupq.text.questions import texts_table
from dupq.training.one_process import QUALITY, KnownPairs, train
from dupq.training.pairs import NEGATIVE_POOL, positives
from dupq.training.word_vectors import make_word_vectors

_BM25 = "BM25"
_EPOCH_QUERIES = 200  # of the development part, that an epoch is measured on
_CUT = 100  # of its MAP
_RANKS = pa.schema(
    [
        pa.field("system", pa.string(), nullable=False),
        pa.field("site", pa.string(), nullable=False),
        pa.field("question_id", pa.int64(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("rank", pa.int64()),  # of the first known duplicate, 1 = the nearest; null: not among the k nearest
        pa.field("average_precision", pa.float64(), nullable=False),  # over the k nearest; its mean is MAP@k
        pa.field("first_site", pa.string()),  # the question ranked first; null: none has anything in common
        pa.field("first_id", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Trained:
    """An encoder, and how it learned."""

    encoder: TextEncoder
    # a row an epoch on known duplicates, from 0, before any: epoch, quality (MAP@100 on development questions among
    # training.development_pool others, 0 without any) and, from epoch 1 on, loss
    curve: list[dict[str, float]]


class Trials:
    """The archive and the known duplicates of a run, in memory.

    Trained on is what the run's own encoder was trained on, so that all are measured on questions that none has seen;
    if that was nothing, the known duplicates are split anew, as `train` would.
    """

    def __init__(self, run: Run) -> None:
        """Raises DupqError if the run has no links, or its archive no known duplicates."""
        rows = run.questions.arrow(["site", "question_id", "title", "body_html"])
        self._sites = Sites(rows["site"].unique().to_pylist())
        packed = self._sites.pack_columns(rows["site"], rows["question_id"], run.questions.place)
        self._keys, first = np.unique(packed, return_index=True)
        self._titles, self._bodies = (rows[name].take(first).to_pylist() for name in ("title", "body_html"))
        self._words = config.from_dict(run.config).text
        links = known_duplicates(run.links.place, self._sites)
        self._links = links[np.isin(links, self._keys).all(axis=1)]
        if not len(self._links):
            raise DupqError(f"{run.links.place}: no known duplicates of this archive; nothing to compare encoders on")
        self.split = _split(self._links, read_split(encoder_at(run.encoder_uri), self._sites))

    def train(self, preset: str = config.DEFAULT_PRESET, settings: Iterable[str] = ()) -> Trained:
        """An encoder of a preset, with settings like `training.epochs=2`, trained on the training part.

        As `dupq train` does, in one process and in memory; the best epoch is chosen on the development part. Raises
        DupqError for a setting that is wrong, or that asks for a teacher or a file of vectors, and for a preset that
        learns from known duplicates only if there are none in the training part.
        """
        chosen_settings = _checked(config.load(preset, settings))
        if chosen_settings.text.language == "auto":
            chosen_settings = config.in_language(chosen_settings, self._words.language)
        training = chosen_settings.training
        pairs = positives(self._links, self.split, training).pairs
        if not len(pairs) and not learns_without_links(chosen_settings):
            raise DupqError(f"preset {preset}: learns from known duplicates only, and the training part has none")
        pool = chosen(np.setdiff1d(self._keys, self.split.questions_of("development", "test")), NEGATIVE_POOL)
        texts = self._texts(chosen_settings.text)
        normaliser = normaliser_of(chosen_settings.text)
        sentences = [normaliser.all_words(text) for text in texts["text"].to_pylist() if text]
        vectors = make_word_vectors(sentences, chosen_settings.word_vectors, training.seed)
        known = KnownPairs(pairs, np.zeros((0, 2), np.int64), self.split, pool)
        measured = _Development(texts, self.split, training).quality
        reader, curve = train(texts, known, chosen_settings, vectors, measured)
        return Trained(TextEncoder(reader), curve)

    def ranks(self, encoders: Mapping[str, TextEncoder], k: int = 100, queries: int = 1000) -> TableView:
        """Where each encoder, and BM25, puts the known duplicates of questions of the test part.

        At most so many `queries` search the whole archive; a row for each system and query. Links are incomplete, so
        what is not found may not be missed: compare systems, and take no figure for what it is.
        """
        check_count(k, "ranks: k=")
        check_count(queries, "ranks: queries=")
        for name, encoder in encoders.items():
            if not isinstance(encoder, TextEncoder):
                raise SettingError(f"ranks: '{name}' is {type(encoder).__name__}; dupq.load_encoder opens an encoder")
        if _BM25 in encoders:
            raise SettingError(f"ranks: an encoder is called {_BM25}; name it otherwise")
        wanted = chosen(self.split.questions_of("test"), queries)
        relevant = _relevant(self.split, wanted)
        rows = []
        for name in (_BM25, *encoders):
            ranker = self._bm25 if name == _BM25 else self._ranker(encoders[name])
            for key, ranked in zip(wanted.tolist(), ranker.rank(wanted, k), strict=True):
                rows.append({"system": name, **self._found(key, ranked, relevant[key], k)})
        return in_memory("ranks", pa.Table.from_pylist(rows, _RANKS))

    def _found(self, key: int, ranked: list[int], relevant: set[int], k: int) -> dict[str, object]:
        (site, *first_site), numbers = self._sites.unpack(np.array([key, *ranked[:1]]))
        question_id, *first_id = numbers.tolist()
        return {
            "site": site,
            "question_id": question_id,
            "title": self._titles[int(np.searchsorted(self._keys, key))],
            "rank": next((place for place, other in enumerate(ranked, 1) if other in relevant), None),
            "average_precision": average_precision(ranked, relevant, k),
            "first_site": first_site[0] if first_site else None,
            "first_id": first_id[0] if first_id else None,
        }

    def _ranker(self, encoder: TextEncoder) -> Ranker:
        embedded = Embeddings(self._keys, *encoder.encode_whole(self._titles, self._bodies))
        return EncoderRanker([embedded], encoder.measure)

    @cached_property
    def _bm25(self) -> Ranker:
        return BM25([(self._keys, self._texts(self._words)["text"].combine_chunks())], self._words.language)

    def _texts(self, settings: TextSettings) -> pa.Table:
        """Rows of TEXTS, by key."""
        titles, bodies = (pa.array(column, pa.string()) for column in (self._titles, self._bodies))
        return texts_table(pa.array(self._keys), titles, bodies, settings)


class _Development:
    """What is measured of an epoch: MAP on questions of the development part."""

    def __init__(self, texts: pa.Table, split: Split, training: TrainingSettings) -> None:
        own = split.questions_of("development")
        self._queries = chosen(own, _EPOCH_QUERIES)
        self._relevant = list(_relevant(split, self._queries).values())
        others = chosen(np.setdiff1d(texts["key"].to_numpy(), split.questions_of("test")), training.development_pool)
        self._texts = texts.filter(pa.array(np.isin(texts["key"].to_numpy(), np.union1d(others, own))))

    def quality(self, reader: Reader) -> dict[str, float]:
        if not len(self._queries):
            return {QUALITY: 0.0}
        embedded = Embeddings(self._texts["key"].to_numpy(), *reader.encode(self._texts)[0])
        rankings = EncoderRanker([embedded], reader.network.measure).rank(self._queries, _CUT)
        return {QUALITY: retrieval_measures(rankings, self._relevant, _CUT)["map"]}


def _split(links: np.ndarray, seen: Mapping[str, np.ndarray]) -> Split:
    """That of the run's encoder; sets that are new since then are of the test part."""
    if not len(seen["train"]):
        return split_links(links, TrainingSettings())
    return unseen_split(links, seen["train"], seen["development"])


def _relevant(split: Split, queries: np.ndarray) -> dict[int, set[int]]:
    """The other questions of the set of each query."""
    sets = split.set_of(queries)
    return {
        key: set(split.questions[split.sets == own].tolist()) - {key}
        for key, own in zip(queries.tolist(), sets.tolist(), strict=True)
    }


def _checked(settings: Settings) -> Settings:
    """With all that the network reads. Raises DupqError for what needs a teacher or a file of vectors."""
    vectors = settings.word_vectors
    if settings.teacher.encoder or vectors.algorithm == "teacher" or vectors.file:
        raise SettingError(
            "trials have neither a teacher nor a file of word vectors; train with dupq train, open the encoder with "
            "dupq.load_encoder, and compare it"
        )
    return settings.changed(encoder=network_settings(settings.encoder).found().given())
