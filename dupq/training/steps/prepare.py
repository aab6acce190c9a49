"""The first training stages: labelled pairs, the split, word vectors, and the token ids that training reads.

The trainer is in fit.py, the teacher's part in teach.py, the last stage in development.py.

pairs      here             pairs of files, as keys
prepare    one task         the split, and which questions are read for what
           a task a file    how often each word occurs (archive_words.py)
           one task         the vocabulary
           a task a file    token ids, and texts that are picked out (token_files.py)
           one task         word vectors, and the network before its first step
teach      many tasks       a teacher's embeddings of some questions, if there is one
fit        N workers        TorchTrainer; each takes its share of every batch
save       one task         the encoder, with what it reaches on its own archive
"""

import logging
from functools import partial

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.encoders.description import FITNESS_QUESTIONS
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import chosen
from dupq.execution.task_files import Counts
from dupq.execution.tasks import Report, run_tasks
from dupq.links.link_files import known_duplicates, read_pairs
from dupq.links.split import FEWEST_SETS, Known, LabelledPairs, Split, known_pairs
from dupq.runs.layout import TrainingFiles
from dupq.runs.question_tables import all_keys, read_keys, write_keys
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings
from dupq.tables import TEXTS
from dupq.text.keys import Sites, distinct, hash_limit, without
from dupq.text.questions import Vocabulary
from dupq.training.pairs import NEGATIVE_POOL, SET_PAIRS, positives
from dupq.training.steps.archive_words import Corpus, count_words, frequent_words, word_files, written_counts
from dupq.training.steps.token_files import (
    QUESTIONS_PER_BUCKET,
    Sequences,
    Titles,
    picked_files,
    picked_texts,
    read_examples,
    read_vocabulary,
    write_token_ids,
)
from dupq.training.word_vectors import OCCURRENCES, OF_START, SAME_LANGUAGE, check_words, with_start

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


def negative_pool(keys: np.ndarray, split: Split) -> np.ndarray:
    """The questions that negatives are drawn from: some of `keys` (int64, ascending) of the training part or of none.

    Development questions are left out: pushed away from all others in training, they could no longer measure an epoch
    or choose a threshold. The pool is the same for the whole archive and for the part of it that training reads.
    """
    return chosen(without(keys, split.questions_of("development", "test")), NEGATIVE_POOL)


def make_start(files: TrainingFiles, site_names: list[str], names: list[str], settings: Settings) -> Counts:
    """Word vectors, and the network over them, initialised from the archive (Encoder.prepare)."""
    from dupq.encoders.encoding import counts_training_texts_only
    from dupq.encoders.saved import weights
    from dupq.training.start import new_network
    from dupq.training.steps.teach import word_teacher
    from dupq.training.vector_files import file_of_written_words
    from dupq.training.word_vectors import vectors_of, with_start

    storage.write_table(files.measured, picked_texts(picked_files(files), read_keys(files.measured_keys)), TEXTS)
    known = read_known(files, Sites(site_names), all_keys(files.texts), settings.training)
    counted, written = word_files(files), written_counts(files, settings)
    taught = word_teacher(next(iter(settings.teacher.encoder), ""), written, settings)
    from_file = None
    if settings.word_vectors.file_words == "written":
        from_file = partial(file_of_written_words, written=written, settings=settings)
    frequent = with_start(frequent_words(counted, settings.word_vectors.words), settings.word_vectors)
    vectors = vectors_of(frequent, Corpus(counted), settings.word_vectors, settings.training.seed, taught, from_file)
    vocabulary = read_vocabulary(files, settings)
    sequences = read_examples(files)
    links = positives(known.links, known.split, settings.training).pairs
    pairs = [(sequences[left], sequences[right]) for left, right in links.tolist()]
    held_out = known.split.questions_of("development", "test") if counts_training_texts_only(settings) else None
    network = new_network(vocabulary, vectors.table, Sequences(files, names, held_out), pairs, settings)
    storage.write_bytes(files.start, weights(network))
    return {"rows_out": len(vectors.words), **vectors.caps}


_log = logging.getLogger(__name__)
SETS, PAIRS_TO_TRAIN_ON = "sets of known duplicates", "pairs of known duplicates to train on"  # counts of `prepare`


def prepare(files: TrainingFiles, sites: Sites, settings: Settings) -> Report:
    """Read the archive, shard by shard, choose words and their vectors, and initialise the network.

    Memory: of a task a shard's texts; of the single ones 8 bytes a question, twice that while they are read, the word
    vectors, the texts that are measured on, and the token ids of known pairs and negatives.
    """
    names = [file.relative for file in storage.list_files(files.texts, ".parquet")]
    report = run_tasks("prepare", _choose, [(files, sites.names, settings)])
    rows = report.rows_in
    sample = storage.read_json(files.sample)
    report.add(count_words(files, sample["corpus"], settings))
    report.add(run_tasks("prepare", _choose_words, [(files, settings)]))
    titles = Titles(sample["titles"], sample["buckets"])
    report.add(write_token_ids(files, names, titles, settings))
    last = run_tasks("prepare", make_start, [(files, sites.names, names, settings)])
    _say_if_of_another_language(last.counts, settings)
    report.add(last)
    report.rows_in, report.rows_out = rows, last.rows_out
    return report


def _say_if_of_another_language(counts: Counts, settings: Settings) -> None:
    share = counts.get(OF_START, 1) / max(counts.get(OCCURRENCES, 1), 1)
    if share < SAME_LANGUAGE:
        _log.warning(
            f"word_vectors.start={settings.word_vectors.start} has {share:.0%} of the words of these texts; the others "
            f"start at random. The language was taken for {settings.text.language}; name another one with text.language"
        )


def _choose(files: TrainingFiles, site_names: list[str], settings: Settings) -> Counts:
    """Which questions are read for what. Memory: all keys, 8 bytes each, three times while some are chosen."""
    from dupq.encoders.encoding import learns_without_links

    keys = all_keys(files.texts)
    known = read_known(files, Sites(site_names), keys, settings.training)
    trained_on = positives(known.links, known.split, settings.training)
    sets = len(distinct(known.split.sets))
    if not len(trained_on.pairs) and not learns_without_links(settings):
        raise DupqError(
            f"links: {sets} sets of known duplicates with their questions in the archive; "
            f"this encoder learns from nothing else and needs at least {FEWEST_SETS}. Add sites with more duplicate "
            "links, or take a preset that learns from titles and bodies too, such as dupq"
        )
    _write_chosen(files, keys, known, settings)
    most = settings.word_vectors.sentences
    folders = [keys] if files.answers is None else [keys, all_keys(files.answers)]
    titled = min(len(keys), settings.title_body.questions) if settings.title_body.epochs else 0
    sample = {
        "corpus": [hash_limit(each, most or len(each)) for each in folders],
        "titles": hash_limit(keys, titled),
        "buckets": -(-titled // QUESTIONS_PER_BUCKET),
    }
    storage.write_json(files.sample, sample)
    is_sampled = settings.word_vectors.is_learned and most > 0
    return {
        "rows_in": len(keys),
        SETS: sets,
        PAIRS_TO_TRAIN_ON: len(trained_on.pairs),
        "cap: questions over word_vectors.sentences": max(0, len(keys) - most) if is_sampled else 0,
        f"cap: pairs over {SET_PAIRS:,} of a set": trained_on.over_set_pairs,
        **known.counts,
    }


def _write_chosen(files: TrainingFiles, keys: np.ndarray, known: Known, settings: Settings) -> None:
    """The keys of the questions that training reads, that the encoder is measured on, and that a teacher reads."""
    taught = chosen(keys, settings.teacher.questions if settings.teacher.encoder else 0)
    if not settings.teacher.held_out:
        taught = without(taught, known.split.questions_of("development", "test"))
    pool = negative_pool(keys, known.split)
    wanted = distinct(np.concatenate([known.split.questions, pool, known.wrong.ravel()]))
    wanted = without(wanted, known.split.questions_of("test"))
    write_keys(files.example_keys, np.concatenate([wanted, taught]))
    write_keys(files.taught_keys, taught)
    measured = [chosen(keys, most) for most in (settings.training.development_pool, FITNESS_QUESTIONS)]
    write_keys(files.measured_keys, np.concatenate([*measured, known.split.questions_of("development")]))


def _choose_words(files: TrainingFiles, settings: Settings) -> Counts:
    frequent = with_start(frequent_words(word_files(files), settings.word_vectors.words), settings.word_vectors)
    check_words(frequent.words, settings.word_vectors)
    vocabulary = Vocabulary(frequent.words, settings.text, settings.word_vectors.hashed)
    storage.write_bytes(files.vocabulary, vocabulary.to_bytes())
    return {}
