"""The first training stages: labelled pairs, the split, word vectors, and the texts that training needs.

The trainer is in fit.py, the teacher's part in teacher.py, the last stage in save_encoder.py.

pairs      here          pairs of files, as keys
prepare    one task      split, word vectors, and the texts that training needs
teach      many tasks    a teacher's embeddings of some questions, if there is one
fit        N workers     TorchTrainer; each takes its share of every batch
save       one task      the encoder, with what it reaches on its own archive
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import chosen
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts
from dupq.links.known import Known, LabelledPairs, known_pairs
from dupq.links.pair_files import read_pairs
from dupq.links.split import FEWEST_SETS, Split
from dupq.links.tables import known_duplicates
from dupq.runs.training_layout import TrainingFiles
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings
from dupq.tables import TEXTS
from dupq.text.keys import Sites
from dupq.text.normalisation import Normaliser
from dupq.text.questions import token_ids
from dupq.text.vocabulary import Vocabulary
from dupq.training.pairs import positives

if TYPE_CHECKING:
    from dupq.training.title_body import TitlesAndBodies

SETS, PAIRS_TO_TRAIN_ON = "sets of known duplicates", "pairs of known duplicates to train on"  # counts of `prepare`
_PAIRS = pa.schema([("left", pa.int64()), ("right", pa.int64()), ("duplicates", pa.bool_())])


def gather_pairs(uris: tuple[str, ...], files: TrainingFiles, sites: Sites) -> Report:
    """Read the pair files into one table that every worker can reach."""
    found = [read_pairs(storage.read_bytes(uri), sites, uri) for uri in uris]
    duplicates, others = (np.unique(np.concatenate(sides), axis=0) for sides in zip(*found, strict=True))
    pairs = np.concatenate([duplicates, others])
    labels = np.arange(len(pairs)) < len(duplicates)
    table = pa.table([pa.array(pairs[:, 0]), pa.array(pairs[:, 1]), pa.array(labels)], schema=_PAIRS)
    storage.write_table(str(files.pairs), table, _PAIRS)
    read = sum(len(side) for sides in found for side in sides)
    return Report(tasks=1, rows_in=read, rows_out=len(pairs), counts={"duplicates": len(duplicates)})


def prepare(files: TrainingFiles, sites: Sites, settings: Settings) -> Report:
    """Train the word vectors, initialise the network, and gather the texts that pairs are made of.

    Memory: those texts, not the archive's.
    """
    return run_tasks("prepare", _prepare, [(files, sites.names, settings)])


class Sentences:
    """The words of an archive, text by text, as word vectors are learned from them; can be iterated again and again.

    One file of texts is in memory at a time.
    """

    def __init__(self, folders: list[str], settings: Settings) -> None:
        """The texts in `folders`, of each at most `word_vectors.sentences`."""
        most = settings.word_vectors.sentences
        self._keys = {folder: chosen(all_keys(folder), most) if most else None for folder in folders}
        self._normaliser = Normaliser(settings.text)

    def __iter__(self) -> Iterator[list[str]]:
        """One list of words a text that has any."""
        for folder, keys in self._keys.items():
            for file in storage.list_files(folder, ".parquet"):
                table = storage.read_table(file.uri, TEXTS, ["text"]) if keys is None else texts_among(file.uri, keys)
                for text in table["text"].to_pylist():
                    if text:
                        yield self._normaliser.all_words(text)


class Sequences:
    """The token ids of the questions of an archive, file by file; can be iterated again and again."""

    def __init__(
        self, folder: str, vocabulary: Vocabulary, settings: Settings, left_out: np.ndarray | None = None
    ) -> None:
        """The texts in `folder`, as an encoder with these settings reads them, without those with keys `left_out`."""
        self._folder, self._vocabulary, self._settings = folder, vocabulary, settings
        self._left_out = left_out

    def __iter__(self) -> Iterator[np.ndarray]:
        """One array (int32) a text, empty ones too."""
        for file in storage.list_files(self._folder, ".parquet"):
            table = storage.read_table(file.uri, TEXTS)
            if self._left_out is not None:
                table = table.filter(pa.array(~np.isin(table["key"].to_numpy(), self._left_out)))
            yield from token_ids(table, self._vocabulary, self._settings)[0]


def texts_among(uri: str, keys: np.ndarray) -> pa.Table:
    """The rows of one file of texts whose questions are among `keys`."""
    table = storage.read_table(uri, TEXTS)
    return table.filter(pa.array(np.isin(table["key"].to_numpy(), keys)))


def all_keys(folder: str) -> np.ndarray:
    """The keys of all questions, sorted: 8 bytes each."""
    files = storage.list_files(folder, ".parquet")
    return np.sort(np.concatenate([storage.read_table(file.uri, TEXTS, ["key"])["key"].to_numpy() for file in files]))


def read_known(files: TrainingFiles, sites: Sites, keys: np.ndarray, settings: TrainingSettings) -> Known:
    """The known pairs of the questions among `keys`, from links and pair files, and their split."""
    none = np.zeros((0, 2), np.int64)
    linked = none if files.links is None else known_duplicates(files.links, sites)
    if files.pairs is None:
        return known_pairs(linked, LabelledPairs(none, none), keys, settings)
    table = storage.read_table(files.pairs, _PAIRS)
    pairs = np.stack([table["left"].to_numpy(), table["right"].to_numpy()], axis=1)
    is_duplicate = table["duplicates"].to_numpy()
    return known_pairs(linked, LabelledPairs(pairs[is_duplicate], pairs[~is_duplicate]), keys, settings)


def negative_pool(keys: np.ndarray, split: Split, settings: TrainingSettings) -> np.ndarray:
    """The questions that negatives are drawn from: some of `keys` (int64), sorted, of the training part or of none.

    Development questions are left out: pushed away from all others in training, they could no longer measure an epoch
    or choose a threshold. The pool is the same for the whole archive and for the part of it that training reads.
    """
    return chosen(np.setdiff1d(keys, split.questions_of("development", "test")), settings.negative_pool)


def _prepare(files: TrainingFiles, site_names: list[str], settings: Settings) -> Counts:
    from dupq.encoders.kinds import learns_without_links
    from dupq.stages.training.teacher import word_teacher
    from dupq.training.word_vectors import make_word_vectors
    from dupq.training.written_words import file_of_written_words

    sites = Sites(site_names)
    keys = all_keys(files.texts)
    known = read_known(files, sites, keys, settings.training)
    trained_on = positives(known.links, known.split, settings.training)
    sets = len(np.unique(known.split.sets))
    if not len(trained_on.pairs) and not learns_without_links(settings):
        raise DupqError(
            f"links: {sets} sets of known duplicates with their questions in the archive; "
            f"this encoder learns from nothing else and needs at least {FEWEST_SETS}. Add sites with more duplicate "
            "links, or take a preset that learns from titles and bodies too, such as dupq"
        )
    _write_examples(files, keys, known, settings)
    folders = [files.texts] if files.answers is None else [files.texts, files.answers]
    sentences = Sentences(folders, settings)
    as_written = settings.changed(text=settings.text.changed(word_form="written"))
    written = Sentences(folders, as_written)
    taught = word_teacher(settings.teacher.encoder, written, settings)
    from_file = None
    if settings.word_vectors.file_words == "written":
        from_file = partial(file_of_written_words, sentences=written, settings=settings)
    vectors = make_word_vectors(sentences, settings.word_vectors, settings.training.seed, taught, from_file)
    vocabulary = Vocabulary(vectors.words, settings.text, settings.word_vectors.hashed)
    storage.write_bytes(files.vocabulary, vocabulary.to_bytes())
    _write_start(files, vocabulary, vectors.table, trained_on.pairs, known.split, settings)
    most = settings.word_vectors.sentences
    return {
        "rows_in": len(keys),
        "rows_out": len(vectors.words),
        SETS: sets,
        PAIRS_TO_TRAIN_ON: len(trained_on.pairs),
        "cap: questions over word_vectors.sentences": max(0, len(keys) - most) if most else 0,
        "cap: pairs over training.set_pairs": trained_on.over_set_pairs,
        "cap: pairs over training.pairs": trained_on.over_pairs,
        **known.counts,
        **vectors.caps,
    }


def _write_examples(files: TrainingFiles, keys: np.ndarray, known: Known, settings: Settings) -> None:
    """The texts that training reads, and the keys of those of them that a teacher reads, if there is one."""
    taught = chosen(keys, settings.teacher.questions if settings.teacher.encoder else 0)
    if not settings.teacher.held_out:
        taught = np.setdiff1d(taught, known.split.questions_of("development", "test"))
    wanted = np.union1d(known.split.questions, negative_pool(keys, known.split, settings.training))
    wanted = np.setdiff1d(np.union1d(wanted, known.wrong), known.split.questions_of("test"))
    wanted = np.union1d(wanted, taught)
    schema = pa.schema([TEXTS.field("key")])
    storage.write_table(files.taught_keys, pa.table([pa.array(taught)], schema=schema), schema)
    tables = [texts_among(file.uri, wanted) for file in storage.list_files(files.texts, ".parquet")]
    storage.write_table(files.examples, pa.concat_tables(tables).sort_by("key"), TEXTS)


def _write_start(
    files: TrainingFiles,
    vocabulary: Vocabulary,
    vectors: np.ndarray,
    links: np.ndarray,
    split: Split,
    settings: Settings,
) -> None:
    """The network over the word vectors, initialised from the archive (Encoder.prepare)."""
    from dupq.encoders.kinds import counts_training_texts_only
    from dupq.encoders.saved import weights
    from dupq.training.start import new_network

    sequences = read_examples(files, vocabulary, settings)
    pairs = [(sequences[left], sequences[right]) for left, right in links.tolist()]
    held_out = split.questions_of("development", "test") if counts_training_texts_only(settings) else None
    counted = Sequences(files.texts, vocabulary, settings, held_out)
    network = new_network(vocabulary, vectors, counted, pairs, settings)
    storage.write_bytes(files.start, weights(network))


def read_examples(files: TrainingFiles, vocabulary: Vocabulary, settings: Settings) -> dict[int, np.ndarray]:
    """The token ids of the questions that training reads, by key, in the order of the keys."""
    examples = storage.read_table(files.examples)
    sequences, _ = token_ids(examples, vocabulary, settings)
    return dict(zip(examples["key"].to_pylist(), sequences, strict=True))


def read_titles_and_bodies(files: TrainingFiles, vocabulary: Vocabulary, settings: Settings) -> "TitlesAndBodies":
    """The questions that have both, in the order of the files; at most `title_body.questions` of the archive."""
    from dupq.training.title_body import TitlesAndBodies

    keys = chosen(all_keys(files.texts), settings.title_body.questions)
    read: list[np.ndarray] = []
    titles: list[np.ndarray] = []
    bodies: list[np.ndarray] = []
    for file in storage.list_files(files.texts, ".parquet"):
        table = texts_among(file.uri, keys)
        has_both = pc.and_(pc.not_equal(table["title"], ""), pc.not_equal(table["title"], table["text"]))
        table = table.filter(has_both)
        rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
        rests = pa.chunked_array([[text[len(title) + 1 :] for title, text in rows]], pa.string())
        read.append(table["key"].to_numpy())
        for found, texts in ((titles, table["title"]), (bodies, rests)):
            found += vocabulary.sequences(texts, settings.encoder.maximum_tokens)[0]
    return TitlesAndBodies(np.concatenate(read), titles, bodies)
