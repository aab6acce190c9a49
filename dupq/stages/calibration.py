"""The network at its best epoch → the saved encoder, with its threshold and the probability of a pair.

One task. It holds a pool of the archive (`training.calibration_pool` questions): embeddings, neighbours and, of those
compared, texts.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from dupq import config, storage
from dupq.encoders.measure import Measure
from dupq.evaluation.known_duplicates import chosen
from dupq.stages.tasks import Counts, Report, run_tasks
from dupq.stages.training import TrainingFiles, all_keys, read_known, texts_among
from dupq.text.keys import Sites
from dupq.text.questions import encoder_texts
from dupq.training.split import Split


def calibrate(files: TrainingFiles, sites: Sites, settings: config.Settings, run_id: str) -> Report:
    """Choose the threshold on development links, and save the encoder."""
    return run_tasks("calibrate", _calibrate, [(files, sites.names, settings, run_id)])


def _calibrate(files: TrainingFiles, site_names: list[str], settings: config.Settings, run_id: str) -> Counts:
    import torch

    from dupq.encoders.build import rebuild
    from dupq.encoders.encode import encode
    from dupq.encoders.saved import SavedEncoder, read_weights, save
    from dupq.neighbours.embeddings import Embeddings, gathered
    from dupq.text.vocabulary import Vocabulary

    torch.set_num_threads(1)
    sites = Sites(site_names)
    vocabulary = Vocabulary.from_bytes(
        storage.read_bytes(files.vocabulary), settings.text, settings.word_vectors.hashed
    )
    tensors = read_weights(storage.read_bytes(files.weights), files.weights)
    network = rebuild(settings.encoder, tensors, files.weights)
    network.spell(vocabulary.words)
    keys = all_keys(files.texts)
    known = read_known(files, sites, keys, settings.training)
    split, links = known.split, known.links
    pool = np.union1d(chosen(keys, settings.training.calibration_pool), split.questions_of("development"))
    pieces = []
    for file in storage.list_files(files.texts, ".parquet"):
        table = texts_among(file.uri, pool)
        sequences, _ = vocabulary.sequences(encoder_texts(table, settings.text), settings.encoder.maximum_tokens)
        pieces.append(Embeddings(table["key"].to_numpy(), *encode(network, sequences, settings.encode.batch_size)))
    decision, measured = decide(files, gathered(pieces), network.measure, split, links, settings)
    metrics = {
        **measured,
        "pool": len(pool),
        "archive_questions": len(keys),
        "learning_curve": storage.read_json(files.curve),
    }
    _write_split(files.output, split, known.wrong, sites)
    save(files.output, SavedEncoder(network, vocabulary, settings, decision, metrics), run_id)
    return {"rows_in": len(pool), "rows_out": 1, "cap: questions over training.calibration_pool": len(keys) - len(pool)}


def decide(
    files: TrainingFiles,
    pool: Any,
    measure: Measure,
    split: Split,
    links: np.ndarray,
    settings: config.Settings,
) -> tuple[Any, dict[str, Any]]:
    """The decision of an encoder, from the nearest neighbours by `measure` of all questions in `pool`.

    Near duplicates are left out: the lexical filter finds them before the encoder, and they would draw the threshold
    to where only they are. Returns the decision with what it was measured on.
    """
    from dupq.encoders.decision import Decision
    from dupq.evaluation.measures import accuracy, best_threshold
    from dupq.evaluation.rankers import EncoderRanker
    from dupq.neighbours.embeddings import Neighbours
    from dupq.neighbours.search import top_k
    from dupq.training.calibration import best_cluster_threshold, fit_probability
    from dupq.training.pairs import with_random_negatives

    found = top_k(pool, [pool], settings.neighbours.k, measure)
    lexical = _near_duplicates(files.texts, found.queries, found.neighbours, settings.near_duplicates)
    found = Neighbours(*(column[~lexical] for column in found))
    queries, known = split.questions_of("development"), _known_pairs(split)
    known = known[~_near_duplicates(files.texts, known[:, 0], known[:, 1], settings.near_duplicates)]
    edges = np.stack([found.queries, found.neighbours], axis=1)
    threshold, clustered = best_cluster_threshold(
        edges, found.similarities, queries, known, settings.training.beta, measure.highest
    )
    asked = np.isin(found.queries, queries)
    duplicates = split.set_of(found.queries[asked]) == split.set_of(found.neighbours[asked])
    slope, intercept = fit_probability(found.similarities[asked].astype(np.float64), duplicates)
    generator = np.random.default_rng(settings.training.seed)
    pairs = with_random_negatives(split.links_of("development", links), pool.keys, split, 1, generator)
    scores = EncoderRanker(pool, measure).score(pairs.left, pairs.right)
    pair_threshold = best_threshold(scores, pairs.labels)
    return Decision(threshold, pair_threshold, slope, intercept), {
        "development_queries": len(queries),
        "development_clusters": clustered,
        "development_pair_accuracy": accuracy(scores, pairs.labels, pair_threshold),
    }


def _known_pairs(split: Split) -> np.ndarray:
    """Every pair of known duplicates of the development part, in both directions (int64, shape (m, 2))."""
    queries = split.questions_of("development")
    sets = split.set_of(queries)
    left, right = np.nonzero((sets[:, None] == sets[None, :]) & (queries[:, None] != queries[None, :]))
    return np.stack([queries[left], queries[right]], axis=1)


def _near_duplicates(
    texts: str, left: np.ndarray, right: np.ndarray, settings: config.NearDuplicateSettings
) -> np.ndarray:
    """Whether each pair of keys is one that the lexical filter finds."""
    from dupq.near_duplicates.shingles import shingle_sets
    from dupq.near_duplicates.verification import jaccard

    keys = np.union1d(left, right)
    tables = [texts_among(file.uri, keys) for file in storage.list_files(texts, ".parquet")]
    table = pa.concat_tables(tables).sort_by("key").combine_chunks()
    sets = shingle_sets(table["text"].chunk(0), settings.shingle_size)
    return jaccard(sets, np.searchsorted(keys, left), np.searchsorted(keys, right)) >= settings.threshold


def _write_split(output: str, split: Split, wrong: np.ndarray, sites: Sites) -> None:
    """Write which question is of which part; those known from `wrong` pairs only, too: they were trained on."""
    from dupq.encoders.description import SPLIT

    alone = np.setdiff1d(wrong, split.questions)
    names, ids = sites.unpack(np.concatenate([split.questions, alone]))
    numbers = np.unique(np.concatenate([split.sets, alone]), return_inverse=True)[1]
    columns = [
        pa.array(names, pa.string()),
        pa.array(ids),
        pa.array(numbers),
        pa.array([*split.parts.tolist(), *["train"] * len(alone)], pa.string()),
    ]
    storage.write_table(storage.join(output, "split.parquet"), pa.table(columns, schema=SPLIT), SPLIT)
