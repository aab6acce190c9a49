"""scored pairs, questions → the pairs with the probabilities that a reranker's cosines give.

    chosen            the questions that are read (reading.py), with their content hashes
    vectors           the reranker's vectors, new or from the earlier run
    by_key            the same by key
    plan … directed   the nearest questions of each question of a small site, by these vectors, exactly
    found             those pairs of them that the encoder had not found, and their evidence
    density           how many pairs of a sample are alike, and how many related
    model             the probability in this archive (dupq/clusters/reranking.py)
    scored            all pairs again, with cosine and probability

A shard is read by several tasks, so that a small archive has work for all workers. On CPUs a vector depends on its text
and the model alone: the same bytes for any workers, shards and earlier run. On GPUs its last bits depend on the batch:
the same inputs give the same bytes, but vectors from the earlier run were made in other batches.

Memory: the texts of a task's questions, 2 kB each, their vectors, the model and its libraries (with MiniLM
0.9 GB, which the process keeps); later the evidence and the vectors of the questions of a partition's pairs.
"""

import importlib.metadata
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dupq import kinds, storage, system, tables
from dupq.clusters import reranking
from dupq.clusters.calibration import FEATURES, OF_TITLES, Calibrated, Labelled, Model, read_prior
from dupq.clusters.decision import PairScorer, scored_table, scorer_of_pairs, undirected, unlisted
from dupq.encoders.sentence_models import reread_texts, sentence_vectors
from dupq.job.gpus import Gpus
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Shards, Shuffled, Streamed, Table, subdivided
from dupq.kinds import JSON, columns, streamed
from dupq.neighbours.embeddings import Embeddings, Measure, embeddings_of, keyed_embeddings, keys_in, vectors_in
from dupq.stages.calibration import Calibration
from dupq.stages.embeddings import EarlierEmbeddings, embeddings_table, gpus_to_make, unchanged_embeddings
from dupq.stages.inputs import LEFT_OUT, contents_of
from dupq.stages.pairs import ScoredPairs, compare, questions_of
from dupq.stages.partition import Candidates
from dupq.stages.reading import PAIR_ENDS, Reading, Scope, are_likely, choose, scope_of
from dupq.stages.scopes import with_scopes
from dupq.stages.search.blocks import SearchRequest, SizedFile
from dupq.stages.search.everything import find_nearest
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites, are_pairs_among, distinct, pairs_in, rows_among

_OF_QUESTIONS = columns(tables.QUESTIONS, "title", "body_html")
_TEXTS = pa.schema([*tables.KEYS, *_OF_QUESTIONS])
_Evidence = tuple[Table[kinds.Compared], Shuffled[kinds.TitleContext], Shuffled[kinds.KeyedVector]]


class Reranked(NamedTuple):
    """The candidate pairs with new probabilities where the reranker has read both questions."""

    scored: Table[kinds.Scored]
    read: Shuffled[kinds.KeyedVector]  # the vectors by key
    contents: Table[kinds.ContentHash]  # of the questions that were read
    vectors: Table[kinds.Embedded]  # of the same questions
    sites: tuple[str, ...]  # by which keys are numbered
    model: dict[str, Any]  # `Reread`


@stage("rerank", version=1, keeps=("work/rerank/contents", "work/rerank/vectors"))
def rerank(
    run: Run,
    pairs: ScoredPairs,
    candidates: Candidates,
    calibration: Calibration,
    questions: Shards[kinds.Question],
    contents: Table[kinds.Content],
    request: SearchRequest,
    reading: Reading,
) -> Reranked:
    """Have the reranker read questions, and score the candidates again.

    `pairs` are the candidates with their evidence, `contents` belong to all questions, `request` is the encoder's
    search. Vectors of unchanged questions are taken from the earlier run.
    """
    sites, count, embedded = Sites(request.sites), pairs.scored.partitions, candidates.embeddings
    sizes = [embedded.rows_of(shard) for shard in range(embedded.partitions)]
    scope = scope_of(sites, questions, sizes, reading)
    chosen, cuts = choose(run, pairs.scored, calibration.pairs, contents, embedded, scope)
    hashes, vectors = _read(run, chosen, questions, request.gpus, reading, scope.tasks)
    schema = tables.keyed_vectors(reading.reranker.dimensions)
    keyed = run.shuffle("by_key", keyed_by, count, by="key", schema=schema)(vectors, sites)

    read = run.look_up("vectors_for", keyed, pairs.wanted)
    found = _found(run, pairs, candidates, vectors, keyed, request, scope) if scope.whole.any() else ()
    of_sample = run.shuffle("sampled", sampled_questions, count, by="key")(calibration.pairs, sites)
    own, whole = run.look_up("vectors_for_sample", keyed, of_sample), request.settings.scope != "site"
    density = run.record("density", sample_density)(Streamed(vectors), scope, whole)
    fit = run.record("model", reread_model)
    model = fit(calibration.pairs, own, cuts, scope, density, calibration.model, reading)
    scale = scorer_of_pairs(calibration.model, request.settings.k)._replace(reread=reranking.Reread(**model))
    scored = run.map("scored", rescore)(pairs.compared, pairs.around_for, read, scale, *found)
    run.report.rows_in, run.report.rows_out = chosen.rows, scored.rows
    return Reranked(scored, keyed, hashes, vectors, tuple(sites.names), model)


def _read(
    run: Run,
    chosen: Table[kinds.ContentHash],
    questions: Shards[kinds.Question],
    gpus: Gpus,
    reading: Reading,
    tasks: int,
) -> tuple[Table[kinds.ContentHash], Table[kinds.Embedded]]:
    """Return the reranker's vectors of the chosen questions, read by `tasks` tasks per shard, and their hashes."""
    schema, count = tables.embeddings(reading.reranker.dimensions, False), chosen.partitions * tasks
    vectors, hashes = run.table("vectors", schema, count), run.table("contents", tables.CONTENT_HASHES, count)
    libraries = {name: importlib.metadata.version(name) for name in ("sentence-transformers", "torch")}
    made_by = {"model": reading.reranker.fingerprint, "code": reading.code, **libraries, "algorithm": rerank.version}
    taken = gpus_to_make(run, gpus, made_by, vectors, hashes)
    device = system.GPU if taken else system.CPU
    before = rerank.earlier(run, {**made_by, "device": device})
    earlier = None if before is None else EarlierEmbeddings(contents_of(before.contents, before.sites), before.vectors)
    repeated = replace(questions, shards=tuple(shard for shard in questions.shards for _ in range(tasks)))
    read = run.map("vectors", vectors_for, schema, second=hashes, gpus=taken)
    return hashes, read(subdivided(chosen, tasks), repeated, [*questions.sites], reading, device, earlier)


def _found(
    run: Run,
    pairs: ScoredPairs,
    candidates: Candidates,
    vectors: Table[kinds.Embedded],
    keyed: Shuffled[kinds.KeyedVector],
    request: SearchRequest,
    scope: Scope,
) -> _Evidence | tuple[()]:
    """Return the evidence of pairs that only the reranker finds in sites that are read whole, as of all others."""
    searched, sites, count = [], scope.sites, request.partitions
    vectors = with_scopes(run, vectors, request.scopes, request.sites)
    for number, site in enumerate(np.repeat(scope.shards, scope.tasks).tolist()):
        rows = vectors.rows_of(number) if scope.whole[site] else 0
        if rows:
            searched.append(SizedFile(storage.name(vectors.file(number)), sites.names[site], rows))
    if not searched:
        return ()
    settings = request.settings.changed(k=reranking.NEAREST, block_rows=0)
    nearest = find_nearest(run, searched, replace(request, settings=settings, measure=Measure()), vectors)
    new = run.map("found", new_pairs)(nearest.directed, pairs.scored)
    ends = run.shuffle("found_ends", questions_of, count, by="key")(new)
    embedded = candidates.embeddings
    schema = storage.read_schema(embedded.file(0)).remove_metadata().append(tables.KEYS.field("key"))
    by_key = run.shuffle("embedded", with_keys, count, by="key", schema=schema)(embedded, scope)
    title_context = run.look_up("found_around", candidates.title_context, ends)
    vectors_of_ends = run.look_up("found_embeddings", by_key, ends)
    texts, rarities = run.look_up("found_terms", candidates.terms.terms, ends), Broadcast(candidates.terms.rarities)
    comparing = run.map("found_compared", compare_unlisted)
    compared = comparing(new, vectors_of_ends, texts, rarities, sites, request.measure)
    return compared, title_context, run.look_up("found_vectors", keyed, ends)


@step(tables.CONTENT_HASHES, streamed(_OF_QUESTIONS), makes=tables.EMBEDDED, second=tables.CONTENT_HASHES)
def vectors_for(
    contents: pa.Table,
    questions: Iterator[pa.RecordBatch],
    site_names: list[str],
    reading: Reading,
    device: str,
    earlier: EarlierEmbeddings | None,
) -> StepResult[pa.Table]:
    """Return the reranker's vectors of some questions of a shard (tables.embeddings); the second table is `contents`.

    `contents` are the questions' hashes (CONTENT_HASHES). Vectors of unchanged questions are as in the `earlier` run.
    """
    keys, sites = contents["key"].to_numpy(), Sites(site_names)
    taken, left_out = unchanged_embeddings(earlier, contents, sites, keys)
    vectors, is_same = np.zeros((len(keys), reading.reranker.dimensions), np.float16), np.zeros(len(keys), bool)
    for table in taken:
        rows = np.searchsorted(keys & MAXIMUM_ID, table["question_id"].to_numpy())  # all of one site, ascending
        vectors[rows], is_same[rows] = vectors_in(table["embedding"]), True
    if not is_same.all():
        import torch

        torch.set_num_threads(1)  # a task has one CPU
        asked = rows_among(questions, keys[~is_same], _TEXTS).sort_by("key")
        texts = reread_texts(asked["title"].to_pylist(), asked["body_html"].to_pylist(), reading.code)
        vectors[~is_same] = sentence_vectors(reading.reranker, texts, device)
    counts = {"rows_in": len(keys), "vectors as in the earlier run": int(is_same.sum())}
    return StepResult(embeddings_table(Embeddings(keys, vectors), sites), counts, contents, {LEFT_OUT: left_out})


@step(tables.EMBEDDED, makes=tables.KEYED_VECTORS)
def keyed_by(vectors: pa.Table, sites: Sites) -> pa.Table:
    """Return vectors (tables.embeddings) by key (keyed_vectors)."""
    keys, found = keys_in(vectors, sites.names), vectors["embedding"]
    return pa.table([keys, found], schema=tables.keyed_vectors(found.type.list_size))


@step(tables.NEIGHBOURS, columns(tables.SCORED, "left", "right"), makes=tables.KEY_PAIRS)
def new_pairs(directed: pa.Table, listed: pa.Table) -> pa.Table:
    """Return the pairs of rows of NEIGHBOURS that are not in `listed` (KEY_PAIRS)."""
    pairs = undirected(directed).select(tables.KEY_PAIRS.names)
    known = np.unique(pairs_in(listed), axis=0)
    return pairs.filter(pa.array(~are_pairs_among(known, pairs_in(pairs))))


@step(tables.EMBEDDED, makes=tables.EMBEDDED)
def with_keys(embedded: pa.Table, scope: Scope) -> pa.Table:
    """Return the encoder's embeddings of questions of sites that are read whole, with their keys."""
    table = embedded.append_column("key", pa.array(keys_in(embedded, scope.sites.names)))
    return table.filter(pa.array(scope.is_whole(table["key"].to_numpy())))


@step(tables.KEY_PAIRS, tables.EMBEDDED, tables.TERMS, tables.RARITIES, makes=tables.COMPARED)
def compare_unlisted(
    pairs: pa.Table, embedded: pa.Table, texts: pa.Table, rarities: pa.Table, sites: Sites, measure: Measure
) -> pa.Table:
    """Return pairs of which neither side lists the other with what their texts have in common (COMPARED)."""
    scores = unlisted(pairs_in(pairs), embeddings_of(embedded, sites, "embeddings"), measure)
    return compare(scores, texts, rarities)


@step(columns(tables.CALIBRATION_PAIRS, *PAIR_ENDS), makes=tables.KEYS)
def sampled_questions(pairs: pa.Table, sites: Sites) -> pa.Table:
    """Return the questions of rows of CALIBRATION_PAIRS (KEYS)."""
    return pa.table([distinct(sites.pack_pairs(pairs, "pairs"))], schema=tables.KEYS)


@step(streamed(tables.EMBEDDED), makes=JSON)
def sample_density(vectors: Iterator[pa.Table], scope: Scope, across_sites: bool) -> dict[str, float]:
    """Return the density of the sample (`Density`). Memory: its vectors."""
    keys, rows = [np.zeros(0, np.int64)], list[np.ndarray]()
    for table in vectors:
        own = keys_in(table, scope.sites.names)
        is_sampled = scope.in_sample(own)
        keys.append(own[is_sampled])
        rows.append(vectors_in(table["embedding"])[is_sampled])
    every = np.concatenate(keys)
    owners = np.zeros(len(every), np.int64) if across_sites else every >> ID_BITS
    found = [reranking.density_of(np.concatenate(rows)[owners == owner]) for owner in np.unique(owners)]
    return reranking.Density(*map(sum, zip(reranking.Density(0, 0.0, 0.0), *found, strict=True)))._asdict()


@step(tables.CALIBRATION_PAIRS, tables.KEYED_VECTORS, tables.CUTS, makes=JSON)
def reread_model(
    pairs: pa.Table,
    vectors: pa.Table,
    cuts: pa.Table,
    scope: Scope,
    density: Mapping[str, Any],
    calibrated: Calibrated,
    reading: Reading,
) -> dict[str, Any]:
    """Return `Reread` fitted to CALIBRATION_PAIRS: judged ones, and those that are read for their probability.

    Others with a link are read too, but they would say that such pairs are mostly duplicates.
    """
    ends, p = scope.sites.pack_pairs(pairs, "pairs"), pairs["probability"].to_numpy()
    cosines, is_judged = reranking.cosines_of(keyed_embeddings(vectors), ends), pairs["is_judged"].to_numpy()
    is_open = scope.is_whole(ends).all(axis=1) | are_likely(ends[:, 0], p, cuts, len(scope.read))
    cosines[~(is_open | is_judged)] = np.nan
    facts = (pairs[name].to_numpy() for name in ("label", "weight", "is_judged", "log_rate"))
    features = np.array(pairs["features"].to_pylist()).reshape(len(pairs), len(FEATURES))
    first = Model.from_dict(calibrated["model"])
    prior = read_prior(reading.prior or (OF_TITLES if calibrated["titles_only"] else ""))
    known, sample = Labelled(features, *facts), reranking.Density(**density)
    return reranking.fit_reread(known, cosines, first, prior, sample, reading.reranker.is_default)._asdict()


@step(tables.COMPARED, tables.TITLE_CONTEXT, tables.KEYED_VECTORS, makes=tables.SCORED)
def rescore(
    compared: pa.Table, title_context: pa.Table, vectors: pa.Table, scale: PairScorer, *found: pa.Table
) -> pa.Table:
    """Return SCORED of pairs; `found` are the same three tables of other pairs, if there are any."""
    sets = [(compared, title_context, vectors), found] if found else [(compared, title_context, vectors)]
    return pa.concat_tables([scored_table(pairs, own, scale, keyed_embeddings(read)) for pairs, own, read in sets])
