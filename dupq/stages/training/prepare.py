"""texts, known duplicates → the inputs of training, and the network before its first step.

    known        known and labelled pairs of questions of the archive
    uses         the questions that training reads, and for what; also the limits of samples
    words        how often each word occurs (words_and_ids.py)
    vocabulary   the words that get vectors
    ids          token ids; titles and bodies (words_and_ids.py)
    examples     the token ids of the questions that are trained on
    picked       the texts of the questions that the encoder is measured on, or that teachers read
    start        word vectors, and the network over them

A task holds a shard's texts; `uses` 8 bytes per question, three times while some are chosen; `start` the word vectors,
and the token ids of known pairs and negatives.
"""

import logging
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.encoders.saved import FITNESS_QUESTIONS, weights
from dupq.errors import DupqError
from dupq.job.run import Run
from dupq.job.step import Counted, as_is
from dupq.job.table import Each, Files, ReadWith, Table, Whole
from dupq.links import FEWEST_SETS, Known, Split, known_pairs, links_table, read_pairs, split_links
from dupq.settings.config import Settings
from dupq.settings.sections import TrainingSettings
from dupq.stages.training.words import (
    FREQUENT,
    IDS,
    QUESTIONS_PER_BUCKET,
    SENTENCES,
    TITLES,
    WORD_COUNTS,
    chosen_words,
    count_words,
    each_text,
    ids_of,
    merge_counts,
    reads_written_words,
    rows_with_uses,
    sentences_of,
    sequences_in,
    vocabulary_of,
)
from dupq.tables import KEY_PAIRS, TEXTS
from dupq.text.keys import Sites, are_among, distinct, hash_limit, pairs_in, sample_by_hash, sorted_keys, without
from dupq.training import word_vectors
from dupq.training.pairs import NEGATIVE_POOL, SET_PAIRS, positives
from dupq.training.start import new_network

_log = logging.getLogger(__name__)
SETS, PAIRS_TO_TRAIN_ON = "sets of known duplicates", "pairs of known duplicates to train on"  # counts of `prepare`
PAIRS = pa.schema([*KEY_PAIRS, pa.field("duplicates", pa.bool_(), False)])
USES = pa.schema(
    [("key", pa.int64()), ("is_example", pa.bool_()), ("is_measured", pa.bool_()), ("is_taught", pa.bool_())]
)


class Prepared(NamedTuple):
    """The inputs of training."""

    known: Table  # PAIRS
    uses: Table  # USES, sorted by key
    words: Table  # WORD_COUNTS
    examples: Table  # IDS
    picked: Table  # TEXTS
    titles: Table  # TITLES
    start: str  # the file of the network's tensors


def gather_pairs(run: Run, uris: tuple[str, ...], sites: Sites) -> Table:
    """Make PAIRS of pair files."""
    pairs = run.map("pairs", distinct_pairs, Whole(ReadWith(pairs_of_file, (uris, sites.names), len(uris))), into=PAIRS)
    run.report.rows_out = pairs.rows
    return pairs


def pairs_of_file(uris: tuple[str, ...], sites: list[str], index: int) -> pa.Table:
    """Return PAIRS of one pair file."""
    pairs, is_duplicate = read_pairs(storage.read_bytes(uris[index]), Sites(sites), uris[index])
    return pa.table([*pairs.T, is_duplicate], schema=PAIRS)


def distinct_pairs(pairs: pa.Table) -> Counted:
    """Return PAIRS without repeated rows."""
    duplicates, others = (np.unique(side, axis=0) for side in _by_label(pairs))
    return Counted(_table_of(duplicates, others), {"rows_in": len(pairs), "duplicates": len(duplicates)})


def _table_of(duplicates: np.ndarray, others: np.ndarray) -> pa.Table:
    pairs = np.concatenate([duplicates, others])
    return pa.table([*pairs.T, np.arange(len(pairs)) < len(duplicates)], schema=PAIRS)


def _by_label(pairs: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the duplicates and the other pairs of PAIRS (int64, shape (m, 2))."""
    is_duplicate = pairs["duplicates"].to_numpy()
    return pairs_in(pairs)[is_duplicate], pairs_in(pairs)[~is_duplicate]


def known_in(pairs: pa.Table, settings: TrainingSettings) -> Known:
    """Return the known pairs of the archive (PAIRS), and their split."""
    links, wrong = _by_label(pairs)
    return Known(links, split_links(links, settings), wrong, {})


def negative_pool(keys: np.ndarray, split: Split) -> np.ndarray:
    """Return the questions of `keys` (int64, ascending) to draw negatives from.

    Development and test questions are left out: training would push them away from all others, and they could no
    longer measure an epoch or choose a threshold. The pool of the whole archive is that of the part that training
    reads.
    """
    return sample_by_hash(without(keys, split.questions_of("development", "test")), NEGATIVE_POOL)


def prepare(
    run: Run,
    questions: Table,
    answers: Table | None,
    links: str | None,
    pairs: Table | None,
    sites: Sites,
    settings: Settings,
) -> Prepared:
    """Choose the questions to read, count words, make their vectors, and initialise the network.

    `questions` and `answers` are TEXTS; answers count for words and word vectors only.
    """
    tables = [questions] if answers is None else [questions, answers]
    keys = [Each(table.only("key")) for table in tables]
    linked = Whole(ReadWith(links_table, (links, sites.names)))
    labelled = PAIRS.empty_table() if pairs is None else Whole(pairs)
    known = run.map("known", known_of_archive, keys[0], linked, labelled, settings.training, into=PAIRS)
    uses = run.table("uses", USES)
    limits = run.record("limits", choose, Whole(known), settings, *keys, second=uses)

    paths = tuple(table.file(index) for table in tables for index in range(table.partitions))
    files = Files(paths, TEXTS, ("key", "text"))
    in_corpus = [limit for table, limit in zip(tables, limits["corpus"], strict=True) for _ in range(table.partitions)]
    frequent, corpus = count_words(run, "words", files, in_corpus, settings, settings.word_vectors.words)
    frequent_count, sentence_count = (run.report.counts[name] for name in (FREQUENT, SENTENCES))
    written: Iterable[pa.Table] = ()
    if reads_written_words(settings):
        as_written = settings.changed(text=settings.text.changed(word_form="written"))
        written = Each(count_words(run, "written", files, [None] * files.partitions, as_written, sys.maxsize)[0])
    words = run.map("vocabulary", chosen_words, Each(frequent), frequent_count, settings, into=WORD_COUNTS)

    buckets = limits["buckets"]
    spread = run.shuffled("titles_by_bucket", TITLES, questions.partitions, buckets, to="bucket")
    ids = run.map("ids", ids_of, questions, Whole(words), limits["titles"], buckets, settings, into=IDS, second=spread)
    titles = run.map("titles", as_is, spread, into=TITLES)
    examples = run.map("examples", rows_with_uses, ids, Whole(uses.only("key", "is_example")), into=IDS)
    uses_of_texts = Whole(uses.only("key", "is_measured", "is_taught"))
    picked = run.map("picked", rows_with_uses, questions, uses_of_texts, into=TEXTS)

    vocabulary = Whole(words), sentence_count, Each(corpus), written
    archive = Whole(known), Whole(examples), Each(ids)
    start = run.write("start", make_start, *vocabulary, *archive, settings, file="start.safetensors")
    share = run.report.counts.get(word_vectors.OF_START, 1) / max(run.report.counts.get(word_vectors.OCCURRENCES, 1), 1)
    if share < word_vectors.SAME_LANGUAGE:
        _log.warning(
            f"word_vectors.start={settings.word_vectors.start} has {share:.0%} of the words of these texts; the others "
            f"start at random. The language was taken for {settings.text.language}; name another one with text.language"
        )
    return Prepared(known, uses, words, examples, picked, titles, start)


def known_of_archive(
    keys: Iterator[pa.Table], linked: pa.Table, labelled: pa.Table, settings: TrainingSettings
) -> Counted:
    """Return PAIRS of questions among `keys` that are linked (KEY_PAIRS) or labelled (PAIRS)."""
    known = known_pairs(pairs_in(linked), _by_label(labelled), sorted_keys(keys), settings)
    return Counted(_table_of(known.links, known.wrong), known.counts)


def choose(pairs: pa.Table, settings: Settings, *keys: Iterator[pa.Table]) -> Counted:
    """Return the limits of the hashes of keys, for the corpus and for titles; the second table has USES.

    `keys` are those of the questions and, if answers are read, of these. Raises DupqError if there is nothing that the
    encoder learns from.
    """
    from dupq.encoders.encoding import learns_without_links

    read, known = [sorted_keys(each) for each in keys], known_in(pairs, settings.training)
    questions = read[0]
    trained_on = positives(known.links, known.split, settings.training)
    sets = len(distinct(known.split.sets))
    if not len(trained_on.pairs) and not learns_without_links(settings):
        raise DupqError(
            f"links: {sets} sets of known duplicates with their questions in the archive; "
            f"this encoder learns from nothing else and needs at least {FEWEST_SETS}. Add sites with more duplicate "
            "links, or take a preset that learns from titles and bodies too, such as dupq"
        )
    vectors = settings.word_vectors
    most = vectors.sentences
    titled = min(len(questions), settings.title_body.questions) if settings.title_body.epochs else 0
    limits = {
        "corpus": [hash_limit(each, most or len(each)) if vectors.is_learned else None for each in read],
        "titles": hash_limit(questions, titled),
        "buckets": -(-titled // QUESTIONS_PER_BUCKET),
    }
    is_sampled = vectors.is_learned and most > 0
    counts = {
        "rows_in": len(questions),
        SETS: sets,
        PAIRS_TO_TRAIN_ON: len(trained_on.pairs),
        "cap: questions over word_vectors.sentences": max(0, len(questions) - most) if is_sampled else 0,
        f"cap: pairs over {SET_PAIRS:,} of a set": trained_on.over_set_pairs,
    }
    return Counted(limits, counts, _uses(questions, known, settings))


def _uses(keys: np.ndarray, known: Known, settings: Settings) -> pa.Table:
    """Return USES: the questions that are trained on, that the encoder is measured on, and that teachers read."""
    split = known.split
    taught = sample_by_hash(keys, settings.teacher.questions if settings.teacher.encoder else 0)
    if not settings.teacher.held_out:
        taught = without(taught, split.questions_of("development", "test"))
    examples = distinct(np.concatenate([split.questions, negative_pool(keys, split), known.wrong.ravel()]))
    examples = distinct(np.concatenate([without(examples, split.questions_of("test")), taught]))
    most = max(settings.training.development_pool, FITNESS_QUESTIONS)
    measured = distinct(np.concatenate([sample_by_hash(keys, most), split.questions_of("development")]))
    used = distinct(np.concatenate([examples, measured]))
    return pa.table([used, *(are_among(use, used) for use in (examples, measured, taught))], schema=USES)


def make_start(
    words: pa.Table,
    sentences: int,
    corpus: Iterable[pa.Table],
    written: Iterable[pa.Table],
    pairs: pa.Table,
    examples: pa.Table,
    ids: Iterable[pa.Table],
    settings: Settings,
) -> Counted:
    """Return the network (bytes) over word vectors, initialised from the archive (Encoder.prepare)."""
    from dupq.encoders.encoding import counts_training_texts_only
    from dupq.stages.training.teach import teacher_word_vectors

    known, vocabulary = known_in(pairs, settings.training), vocabulary_of(words, settings)
    counts = dict(zip(*merge_counts(written).to_pydict().values(), strict=True))
    teacher, read_file = next(iter(settings.teacher.encoder), ""), None
    ask_teacher = partial(teacher_word_vectors, encoder=teacher, written=counts, settings=settings)
    if settings.word_vectors.file_words == "written":
        read_file = partial(word_vectors.read_spelt_vectors, written=counts, settings=settings)
    frequent = word_vectors.FrequentWords(vocabulary.words, words["count"].to_pylist(), 0, sentences)
    texts, seed = word_vectors.FlatMap(corpus, sentences_of), settings.training.seed
    vectors = word_vectors.vectors_for(frequent, texts, settings.word_vectors, seed, ask_teacher, read_file)
    sequences, links = sequences_in(examples), positives(known.links, known.split, settings.training).pairs
    linked = [(sequences[left], sequences[right]) for left, right in links.tolist()]
    held_out = known.split.questions_of("development", "test") if counts_training_texts_only(settings) else None
    network = new_network(vocabulary, vectors.table, word_vectors.FlatMap(ids, each_text, held_out), linked, settings)
    return Counted(weights(network), {"rows_out": len(words), **vectors.caps})
