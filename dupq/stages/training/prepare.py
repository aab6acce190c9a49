"""texts, known duplicates → the inputs of training, and the network before its first step.

    known        known and labelled pairs of questions of the archive
    uses         the questions that training reads, and for what; also the limits of samples
    words        how often each word occurs (words.py)
    vocabulary   the words that get vectors
    ids          token ids; titles and bodies (words.py)
    examples     the token ids of the questions that are trained on
    picked       the texts of the questions that the encoder is measured on, or that a teacher reads
    start        word vectors, and the network over them

A task holds a shard's texts; `uses` 8 bytes per question, three times while some are chosen; `start` the word vectors,
and the token ids of known pairs and negatives.
"""

import logging
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple, NewType

import numpy as np
import pyarrow as pa
from typing_extensions import TypedDict

from dupq import kinds, storage
from dupq.encoders.saved import FITNESS_QUESTIONS, weights
from dupq.errors import DupqError
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, as_is, step
from dupq.job.table import Broadcast, Computed, File, Partition, Streamed, Table
from dupq.kinds import JSON, Schema, columns, streamed
from dupq.links import FEWEST_SETS, KnownDuplicates, Split, known_pairs, links_table, read_pairs, split_links
from dupq.settings.config import Settings
from dupq.settings.sections import TrainingSettings
from dupq.stages.training.words import (
    CORPUS,
    IDS,
    QUESTIONS_PER_BUCKET,
    TITLES,
    WORD_COUNTS,
    TextIds,
    TitleIds,
    WordCount,
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
LabelledPair = NewType("LabelledPair", kinds.KeyPair)
Use = NewType("Use", kinds.Key)
PAIRS: Schema[LabelledPair] = pa.schema([*KEY_PAIRS, pa.field("duplicates", pa.bool_(), False)])
USES: Schema[Use] = pa.schema(
    [("key", pa.int64()), ("is_example", pa.bool_()), ("is_measured", pa.bool_()), ("is_taught", pa.bool_())]
)


class Prepared(NamedTuple):
    """The inputs of training."""

    known: Table[LabelledPair]
    uses: Table[Use]  # sorted by key
    words: Table[WordCount]
    examples: Table[TextIds]
    picked: Table[kinds.Text]
    titles: Table[TitleIds]
    start: File  # the network's tensors
    questions: int  # of the archive
    sets: int  # of known duplicates
    pairs: int  # of known duplicates to train on


class Limits(TypedDict):
    """The limits of samples by hashes of keys, and what there is to learn from."""

    corpus: list[int | None]  # of the questions and, if there are any, of the answers; None: none of them
    titles: int
    buckets: int  # of titles
    questions: int
    sets: int
    pairs: int  # as in Prepared


@stage("pairs", version=1)
def gather_pairs(run: Run, files: int, sites: Sites) -> Table[LabelledPair]:
    """Make the labelled pairs of the run's copies of so many pair files."""
    uris = tuple(str(run.copy_of(f"pairs-{number}")) for number in range(files))
    read: Computed[LabelledPair] = Computed(pairs_of_file, (uris, sites.names), files)
    pairs = run.map("pairs", distinct_pairs)(Broadcast(read))
    run.report.rows_out = pairs.rows
    return pairs


def pairs_of_file(uris: tuple[str, ...], sites: list[str], index: int) -> pa.Table:
    """Return PAIRS of one pair file."""
    pairs, is_duplicate = read_pairs(storage.read_bytes(uris[index]), Sites(sites), uris[index])
    return pa.table([*pairs.T, is_duplicate], schema=PAIRS)


@step(PAIRS, makes=PAIRS)
def distinct_pairs(pairs: pa.Table) -> StepResult[pa.Table]:
    """Return PAIRS without repeated rows."""
    duplicates, others = (np.unique(side, axis=0) for side in _by_label(pairs))
    return StepResult(_table_of(duplicates, others), {"rows_in": len(pairs), "duplicates": len(duplicates)})


@stage("prepare", version=3)
def prepare(
    run: Run,
    questions: Table[kinds.Text],
    answers: Table[kinds.Text] | None,
    pairs: Table[LabelledPair] | None,
    sites: Sites,
    settings: Settings,
) -> Prepared:
    """Choose the questions to read, count words, make their vectors, and initialise the network.

    Answers count for words and word vectors only.
    """
    linked: Computed[kinds.KeyPair] = Computed(links_table, (run.copy_of("links"), sites.names))
    labelled = None if pairs is None else Broadcast(pairs)
    find_known, uses = run.map("known", known_of_archive), run.table("uses", USES)
    known = find_known(Streamed(questions), Broadcast(linked), settings.training, labelled)
    others = None if answers is None else Streamed(answers.only("key"))
    limits = run.record("limits", choose, uses)(Broadcast(known), Streamed(questions), settings, others)

    tables = [questions] if answers is None else [questions, answers]
    parts = [Partition(table, number) for table in tables for number in range(table.partitions)]
    in_corpus = [limit for table, limit in zip(tables, limits["corpus"], strict=True) for _ in range(table.partitions)]
    frequent, corpus = count_words(run, "words", parts, in_corpus, settings, settings.word_vectors.words)
    frequent_count = run.report.numbers["frequent"]
    written: Iterable[pa.Table] = ()
    if reads_written_words(settings):
        as_written = settings.changed(text=settings.text.changed(word_form="written"))
        written = Streamed(count_words(run, "written", parts, [None] * len(parts), as_written, sys.maxsize)[0])
    words = run.map("vocabulary", chosen_words)(Streamed(frequent), frequent_count, settings)

    buckets, vocabulary = limits["buckets"], Broadcast(words)
    spread = run.shuffled("titles_by_bucket", TITLES, questions.partitions, buckets, to="bucket")
    ids = run.map("ids", ids_of, second=spread)(questions, vocabulary, limits["titles"], buckets, settings)
    titles = run.map("titles", as_is, TITLES)(spread.table)
    examples = run.map("examples", rows_with_uses, IDS)(ids, Broadcast(uses.only("key", "is_example")))
    to_pick = Broadcast(uses.only("key", "is_measured", "is_taught"))
    picked = run.map("picked", rows_with_uses, TEXTS)(questions, to_pick)

    initialise, training_set = run.write("start.safetensors", make_start), Broadcast(examples)
    start = initialise(vocabulary, Streamed(corpus), Broadcast(known), training_set, Streamed(ids), settings, written)
    share = run.report.numbers["of start"] / max(run.report.numbers["occurrences"], 1)
    if share < word_vectors.SAME_LANGUAGE:
        _log.warning(
            f"word_vectors.start={settings.word_vectors.start} has {share:.0%} of the words of these texts; the others "
            f"start at random. The language was taken for {settings.text.language}; name another one with text.language"
        )
    questions_read, sets, trained_on = limits["questions"], limits["sets"], limits["pairs"]
    return Prepared(known, uses, words, examples, picked, titles, File(start), questions_read, sets, trained_on)


@step(streamed(columns(TEXTS, "key")), KEY_PAIRS, makes=PAIRS)
def known_of_archive(
    keys: Iterator[pa.Table], linked: pa.Table, settings: TrainingSettings, labelled: pa.Table | None
) -> StepResult[pa.Table]:
    """Return PAIRS of questions among `keys` that are linked (KEY_PAIRS) or labelled (PAIRS)."""
    by_label = _by_label(PAIRS.empty_table() if labelled is None else labelled)
    known = known_pairs(pairs_in(linked), by_label, sorted_keys(keys), settings)
    return StepResult(_table_of(known.links, known.wrong), known.counts)


@step(PAIRS, streamed(columns(TEXTS, "key")), makes=JSON, second=USES)
def choose(
    pairs: pa.Table, questions: Iterator[pa.Table], settings: Settings, answers: Iterable[pa.Table] | None
) -> StepResult[Limits]:
    """Return the limits of the hashes of keys, and what there is to learn from; the second table has USES.

    Of questions and answers only the keys are read. Raises DupqError if there is nothing that the encoder learns from.
    """
    from dupq.encoders.encoding import learns_without_links

    known, keys = known_in(pairs, settings.training), sorted_keys(questions)
    read = [keys] if answers is None else [keys, sorted_keys(answers)]
    trained_on = positives(known.links, known.split, settings.training)
    sets = len(distinct(known.split.sets))
    if not len(trained_on.pairs) and not learns_without_links(settings):
        raise DupqError(
            f"links: {sets} sets of known duplicates with their questions in the archive; "
            f"this encoder learns from nothing else and needs at least {FEWEST_SETS}. Add sites with more duplicate "
            "links, or take a preset that learns from titles and bodies too, such as dupq"
        )
    most = settings.word_vectors.learned_from
    titled = min(len(keys), settings.title_body.questions) if settings.title_body.epochs else 0
    limits = Limits(
        corpus=[None if most is None else hash_limit(each, most or len(each)) for each in read],
        titles=hash_limit(keys, titled),
        buckets=-(-titled // QUESTIONS_PER_BUCKET),
        questions=len(keys),
        sets=sets,
        pairs=len(trained_on.pairs),
    )
    counts = {
        "rows_in": len(keys),
        "sets of known duplicates": sets,
        "pairs of known duplicates to train on": len(trained_on.pairs),
    }
    caps = {
        "questions over word_vectors.sentences": max(0, len(keys) - most) if most else 0,
        f"pairs over {SET_PAIRS:,} of a set": trained_on.over_set_pairs,
    }
    return StepResult(limits, counts, _uses(keys, known, settings), caps)


@step(WORD_COUNTS, streamed(CORPUS), PAIRS, IDS, streamed(IDS), makes=JSON)
def make_start(
    words: pa.Table,
    corpus: Iterable[pa.Table],
    pairs: pa.Table,
    examples: pa.Table,
    ids: Iterable[pa.Table],
    settings: Settings,
    written: Iterable[pa.Table],
) -> StepResult[bytes]:
    """Return the network over word vectors, initialised from the archive (Encoder.prepare).

    `written` counts written words, if their vectors are read.
    """
    from dupq.encoders.encoding import counts_training_texts_only

    known, vocabulary = known_in(pairs, settings.training), vocabulary_of(words, settings)
    counts = dict(zip(*merge_counts(written).to_pydict().values(), strict=True))
    frequent = word_vectors.FrequentWords(vocabulary.words, words["count"].to_pylist(), 0)
    texts, seed = word_vectors.FlatMap(corpus, sentences_of), settings.training.seed
    vectors = word_vectors.vectors_for(frequent, texts, settings.word_vectors, seed, (settings, counts))
    sequences, links = sequences_in(examples), positives(known.links, known.split, settings.training).pairs
    linked = [(sequences[left], sequences[right]) for left, right in links.tolist()]
    held_out = known.split.questions_of("development", "test") if counts_training_texts_only(settings) else None
    network = new_network(vocabulary, vectors.table, word_vectors.FlatMap(ids, each_text, held_out), linked, settings)
    known_words = {"occurrences": word_vectors.OCCURRENCES, "of start": word_vectors.OF_START}
    numbers = {name: vectors.caps.get(count, 1) for name, count in known_words.items()}  # 1: no other encoder's words
    return StepResult(weights(network), {"rows_out": len(words), **vectors.caps}, numbers=numbers)


def known_in(pairs: pa.Table, settings: TrainingSettings) -> KnownDuplicates:
    """Return the known pairs of the archive (PAIRS), and their split."""
    links, wrong = _by_label(pairs)
    return KnownDuplicates(links, split_links(links, settings), wrong, {})


def negative_pool(keys: np.ndarray, split: Split) -> np.ndarray:
    """Return the questions of `keys` (int64, ascending) to draw negatives from.

    Development and test questions are left out: training would push them away from all others, and they could no
    longer measure an epoch or choose a threshold. The pool of the whole archive is that of the part that training
    reads.
    """
    return sample_by_hash(without(keys, split.questions_of("development", "test")), NEGATIVE_POOL)


def _uses(keys: np.ndarray, known: KnownDuplicates, settings: Settings) -> pa.Table:
    """Return USES: the questions that are trained on, that the encoder is measured on, and that a teacher reads."""
    split = known.split
    taught = sample_by_hash(keys, settings.teacher.questions if settings.teacher.encoder else 0)
    taught = without(taught, split.questions_of("development", "test"))
    examples = distinct(np.concatenate([split.questions, negative_pool(keys, split), known.wrong.ravel()]))
    examples = distinct(np.concatenate([without(examples, split.questions_of("test")), taught]))
    most = max(settings.training.development_pool, FITNESS_QUESTIONS)
    measured = distinct(np.concatenate([sample_by_hash(keys, most), split.questions_of("development")]))
    used = distinct(np.concatenate([examples, measured]))
    return pa.table([used, *(are_among(use, used) for use in (examples, measured, taught))], schema=USES)


def _table_of(duplicates: np.ndarray, others: np.ndarray) -> pa.Table:
    pairs = np.concatenate([duplicates, others])
    return pa.table([*pairs.T, np.arange(len(pairs)) < len(duplicates)], schema=PAIRS)


def _by_label(pairs: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the duplicates and the other pairs of PAIRS (int64, shape (m, 2))."""
    is_duplicate = pairs["duplicates"].to_numpy()
    return pairs_in(pairs)[is_duplicate], pairs_in(pairs)[~is_duplicate]
