"""scored pairs, questions → the pairs with the probabilities that a reranker's cosines give.

    odds, cuts        from which probability on a site's pairs are read: its PAIRS likeliest, or more if it is large
    likely            the questions of these pairs, and of pairs with links or verdicts
    chosen            these, all questions of small sites, and a sample by hash: with their content hashes
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

Memory: the texts of a task's questions, 2 kB each, and their vectors, beside the model and its libraries (with MiniLM
0.9 GB, which the process keeps); later the evidence and the vectors of the questions of a partition's pairs.
"""

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage, system
from dupq.clusters import reranking
from dupq.clusters.calibration import FEATURES, OF_TITLES, Calibrated, Labelled, Model, read_prior
from dupq.clusters.decision import Scale, scored_table, undirected, unlisted
from dupq.encoders.sentence_models import Reranker, reread_texts, sentence_vectors
from dupq.job.gpus import Gpus
from dupq.job.records import RERANKER_VERSIONS, RunFiles
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Each, Shards, Shuffled, Table, Whole, subdivided
from dupq.neighbours.embeddings import Embeddings, Measure, embeddings_of, keyed_embeddings, keys_in, vectors_in
from dupq.stages.earlier import LEFT_OUT, Earlier, earlier_vectors, find_contents
from dupq.stages.embeddings import embeddings_table, gpus_to_make
from dupq.stages.pairs import ScoredPairs, compare, questions_of
from dupq.stages.partition import Candidates
from dupq.stages.search.blocks import SearchRequest, SizedFile
from dupq.stages.search.everything import directed_in, search_files
from dupq.tables import CONTENT_HASHES, CUTS, KEY_PAIRS, KEYS, ODDS, QUESTIONS, SCORED, embeddings, keyed_vectors
from dupq.text.keys import (
    ID_BITS,
    Sites,
    are_among,
    are_pairs_among,
    distinct,
    indices_among,
    key_hashes,
    pairs_in,
    rows_among,
)

COLUMNS = ("question_id", "title", "body_html")  # of questions
_TEXTS = pa.schema([CONTENT_HASHES.field("key"), *(QUESTIONS.field(name) for name in COLUMNS[1:])])
_FEWEST, _MOST = 250, 5_000  # questions of a task: if there are few in all, and at most
_TASKS = 64  # of an archive, before they get larger
_DROPPED_BITS = np.uint32(8)  # of a probability, where pairs are counted
_HASHES = 1 << 64


@dataclass(frozen=True)
class Reading:
    """What is read, and how the reranker's vectors are made."""

    reranker: Reranker
    code: str  # the setting text.code
    sites: tuple[str, ...]  # that are read; others are in a language that the reranker does not know
    everything: bool  # the setting reranker.read=all
    device: str = system.CPU
    earlier: Earlier | None = None


@dataclass(frozen=True)
class _Scope:
    """Which questions of an archive are read."""

    sites: Sites
    read: np.ndarray  # bool, by the number of the site
    whole: np.ndarray  # bool, likewise: without a choice
    pairs: tuple[int, ...]  # likeliest ones of each site, whose questions are read
    sampled: int  # questions with a lower hash are read for the density
    shards: np.ndarray  # the number of the site of each shard
    tasks: int  # that read a shard

    def is_read(self, keys: np.ndarray) -> np.ndarray:
        """Tell which keys (any shape) are of sites that are read."""
        return np.asarray(self.read[keys >> ID_BITS])

    def is_whole(self, keys: np.ndarray) -> np.ndarray:
        """Tell which keys (any shape) are of sites that are read whole."""
        return np.asarray(self.whole[keys >> ID_BITS])

    def in_sample(self, keys: np.ndarray) -> np.ndarray:
        """Tell which keys (n,) are in the sample for the density."""
        return self.is_read(keys) & (key_hashes(keys) <= np.uint64(self.sampled))


def rerank(
    run: Run,
    pairs: ScoredPairs,
    candidates: Candidates,
    scale: Scale,
    sampled: Table,
    calibrated: Calibrated,
    questions: Shards,
    contents: Table,
    request: SearchRequest,
    reading: Reading,
    prior: str = "",
    since: RunFiles | None = None,
) -> tuple[Candidates, Scale]:
    """Return the candidates with new probabilities where the reranker has read both questions, and the scale for these.

    `pairs` are the candidates with their evidence, `sampled` those of calibration (CALIBRATION_PAIRS), `contents` the
    hashes of all questions (CONTENT_HASHES), `request` the encoder's search. Vectors of questions that are unchanged
    since the run `since` are taken from there. `prior` is the URI of another prior than dupq's, or empty.
    """
    sites, count, embedded = Sites(request.sites), pairs.scored.partitions, candidates.embeddings
    sizes = [storage.read_counts(embedded.file(shard))["rows_out"] for shard in range(embedded.partitions)]
    scope = scope_of(sites, questions, sizes, reading)
    columns = pairs.scored.only("left", "right", "probability")
    odds = run.map("odds", odds_of, columns, scope, into=ODDS)
    cuts = Whole(run.map("cuts", cuts_of, Each(odds), scope, into=CUTS))
    by_key: dict[str, Any] = {"into": KEYS, "by": "key", "partitions": count}
    wanted = run.shuffle("wanted", likely_questions, columns, cuts, scope, **by_key)
    labelled = run.shuffle("labelled", labelled_questions, sampled, scope, **by_key)
    likely = run.map("likely", each_question, wanted, labelled, into=KEYS)
    named = embedded.only("site", "question_id")
    chosen = run.map("chosen", chosen_of, contents, named, Each(likely), scope, into=CONTENT_HASHES)
    vectors = _read(run, chosen, questions, request.gpus, reading, since, scope.tasks)
    size = reading.reranker.dimensions
    keyed = run.shuffle("by_key", keyed_by, vectors, sites, into=keyed_vectors(size), by="key", partitions=count)
    candidates = candidates._replace(read=keyed)

    read = run.look_up("vectors_for", keyed, pairs.wanted)
    evidence: list[Table | Shuffled] = [pairs.compared, pairs.around_for, read]
    if scope.whole.any():
        evidence += _found(run, pairs, candidates, vectors, request, scope)
    of_sample = run.shuffle("sampled", sampled_questions, sampled, sites, **by_key)
    own, whole = run.look_up("vectors_for_sample", keyed, of_sample), request.settings.scope == "all"
    density = run.record("density", sample_density, Each(vectors), scope, whole)
    fitted = sampled, own, cuts, scope, density, calibrated, reading.reranker.is_default, prior
    scale = scale._replace(reread=reranking.Reread(**run.record("model", reread_model, *fitted)))
    scored = run.map("scored", rescore, scale, *evidence, into=SCORED)
    run.report.rows_in, run.report.rows_out = chosen.rows, scored.rows
    return candidates._replace(scored=scored), scale


def scope_of(sites: Sites, questions: Shards, sizes: Sequence[int], reading: Reading) -> _Scope:
    """Return which questions are read, given the number of embedded questions of each shard, and by how many tasks."""
    shards = np.array([sites.names.index(shard.site) for shard in questions.shards], np.int64)
    counts = np.bincount(shards, sizes, len(sites.names)).astype(np.int64)
    read = np.isin(sites.names, reading.sites) & (counts > 0)
    whole = read & (reading.everything | (counts <= reranking.WHOLE))
    most = reranking.WHOLE if (whole == read).all() else reranking.SAMPLE
    sampled = min(_HASHES - 1, _HASHES * most // max(1, int(counts[read].sum())))
    pairs = np.maximum(reranking.PAIRS, counts // reranking.QUESTIONS_PER_PAIR)
    likely = np.minimum(sizes, 2 * pairs[shards] + reranking.SAMPLE)
    may_be_read = int(np.where(whole[shards], sizes, likely).sum())
    tasks = -(-max(min(_TASKS, 1 + may_be_read // _FEWEST), may_be_read // _MOST) // questions.partitions)
    return _Scope(sites, read, whole, tuple(pairs.tolist()), sampled, shards, tasks)


def _read(
    run: Run, chosen: Table, questions: Shards, gpus: Gpus, reading: Reading, since: RunFiles | None, tasks: int
) -> Table:
    """Return the reranker's vectors of the chosen questions, read by so many tasks per shard."""
    libraries = {name: importlib.metadata.version(name) for name in ("sentence-transformers", "torch")}
    made_by: dict[str, object] = {"model": reading.reranker.fingerprint, "code": reading.code, **libraries}
    made_by["algorithm"] = RERANKER_VERSIONS["rerank"]
    size, hashes = embeddings(reading.reranker.dimensions, False), run.table("contents", CONTENT_HASHES)
    taken = 0
    if not run.is_done:
        made_as = storage.join(run.folder, "made_as.json")
        taken = gpus_to_make(made_as, storage.join(run.folder, "vectors"), gpus, made_by)
        made = {name: value for name, value in storage.read_json(made_as).items() if name != "name"}
        device = system.GPU if taken else system.CPU
        reading = replace(reading, device=device, earlier=earlier_vectors(since, made))
    repeated = replace(questions, shards=tuple(shard for shard in questions.shards for _ in range(tasks)))
    inputs = subdivided(chosen, tasks), repeated, [*questions.sites], reading
    return run.map("vectors", vectors_for, *inputs, into=size, second=hashes, gpus=taken)


def _found(
    run: Run, pairs: ScoredPairs, candidates: Candidates, vectors: Table, request: SearchRequest, scope: _Scope
) -> list[Table | Shuffled]:
    """Return the evidence of pairs that only the reranker finds in sites that are read whole, as that of all others."""
    if run.is_done:
        return []
    assert candidates.read is not None
    searched, sites = [], scope.sites
    for number, site in enumerate(np.repeat(scope.shards, scope.tasks).tolist()):
        rows = storage.read_counts(vectors.file(number))["rows_out"] if scope.whole[site] else 0
        if rows:
            searched.append(SizedFile(storage.name(vectors.file(number)), sites.names[site], rows))
    if not searched:
        return []
    settings = request.settings.changed(k=reranking.NEAREST, block_rows=0)
    folder = vectors.folder.removeprefix(f"{run.uri}/")
    search_files(run, searched, replace(request, settings=settings, measure=Measure(), folder=folder))
    directed = directed_in(storage.join(run.folder, "directed"), request.partitions)
    new = run.map("found", new_pairs, directed, pairs.scored.only("left", "right"), into=KEY_PAIRS)
    ends = run.shuffle("found_ends", questions_of, new, into=KEYS, by="key", partitions=request.partitions)
    embedded = candidates.embeddings
    schema = storage.read_schema(embedded.file(0)).remove_metadata().append(KEYS.field("key"))
    by_key = run.shuffle("embedded", with_keys, embedded, scope, into=schema, by="key", partitions=request.partitions)
    around = run.look_up("found_around", candidates.around, ends)
    evidence = run.look_up("found_embeddings", by_key, ends), run.look_up("found_terms", candidates.terms.terms, ends)
    rarities = Whole(candidates.terms.rarities)
    compared = run.map("found_compared", compare_unlisted, new, *evidence, rarities, sites, request.measure, into=None)
    return [compared, around, run.look_up("found_vectors", candidates.read, ends)]


def odds_of(pairs: pa.Table, scope: _Scope) -> pa.Table:
    """Return how many pairs of sites that are read have which probability (ODDS); a pair counts for its left side."""
    ends = pairs_in(pairs)
    rows = scope.is_read(ends).all(axis=1)
    bits = pairs["probability"].to_numpy()[rows].astype(np.float32).view(np.uint32) >> _DROPPED_BITS
    keys, counts = np.unique(((ends[rows, 0] >> ID_BITS) << 32) | bits, return_counts=True)
    return pa.table([(keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.uint32), counts], schema=ODDS)


def cuts_of(odds: Iterator[pa.Table], scope: _Scope) -> pa.Table:
    """Return the least probability of the pairs of each site that are read (CUTS)."""
    table = pa.concat_tables([ODDS.empty_table(), *odds]).group_by(["site", "bits"]).aggregate([("pairs", "sum")])
    table = table.sort_by([("site", "ascending"), ("bits", "descending")])
    owners, bits, counts = (table[name].to_numpy() for name in ("site", "bits", "pairs_sum"))
    sites, least = np.unique(owners), []
    for site in sites.tolist():
        own = owners == site
        enough = np.flatnonzero(np.cumsum(counts[own]) >= scope.pairs[site])
        least.append(bits[own][enough[0]] if len(enough) else 0)
    return pa.table([sites, (np.array(least, np.uint32) << _DROPPED_BITS).view(np.float32)], schema=CUTS)


def _are_likely(left: np.ndarray, p: np.ndarray, cuts: pa.Table, sites: int) -> np.ndarray:
    """Tell which pairs (bool) are among those of their left site that are read."""
    least = np.full(sites, np.inf)
    least[cuts["site"].to_numpy()] = cuts["probability"].to_numpy()
    return np.asarray(p >= least[left >> ID_BITS])


def likely_questions(pairs: pa.Table, cuts: pa.Table, scope: _Scope) -> pa.Table:
    """Return the questions of likely pairs that are read, but for those of sites that are read whole (KEYS)."""
    ends = pairs_in(pairs)
    likely = _are_likely(ends[:, 0], pairs["probability"].to_numpy(), cuts, len(scope.read))
    return _chosen_keys(ends[likely & scope.is_read(ends).all(axis=1)], scope)


def labelled_questions(pairs: pa.Table, scope: _Scope) -> pa.Table:
    """Return the questions of rows of CALIBRATION_PAIRS with a link or a verdict, likewise (KEYS)."""
    known = pairs.filter(pc.or_(pairs["is_linked"], pairs["is_judged"]))
    ends = scope.sites.pack_pairs(known, "pairs")
    return _chosen_keys(ends[scope.is_read(ends).all(axis=1)], scope)


def _chosen_keys(ends: np.ndarray, scope: _Scope) -> pa.Table:
    keys = distinct(ends)
    return pa.table([keys[~scope.is_whole(keys)]], schema=KEYS)


def sampled_questions(pairs: pa.Table, sites: Sites) -> pa.Table:
    """Return the questions of rows of CALIBRATION_PAIRS (KEYS)."""
    return pa.table([distinct(sites.pack_pairs(pairs, "pairs"))], schema=KEYS)


def each_question(*questions: pa.Table) -> pa.Table:
    """Return the questions of all tables, each once (KEYS)."""
    return pa.table([distinct(np.concatenate([table["key"].to_numpy() for table in questions]))], schema=KEYS)


def chosen_of(contents: pa.Table, embedded: pa.Table, likely: Iterator[pa.Table], scope: _Scope) -> pa.Table:
    """Return the rows of `contents` (CONTENT_HASHES) of a shard's questions that are read, by key.

    `embedded` names those that have an embedding (`site`, `question_id`), `likely` has questions of all shards (KEYS).
    """
    own, keys = keys_in(embedded, scope.sites.names), contents["key"].to_numpy()
    read = own[scope.is_whole(own) if scope.is_whole(own[:1]).all() else scope.in_sample(own)]
    is_read = are_among(np.sort(read), keys)
    for table in likely if not scope.is_whole(own[:1]).all() else ():
        is_read |= are_among(table["key"].to_numpy(), keys)
    return contents.filter(pa.array(is_read)).sort_by("key")


def vectors_for(
    contents: pa.Table, questions: Iterator[pa.RecordBatch], site_names: list[str], reading: Reading
) -> Counted:
    """Return the reranker's vectors of some questions of a shard (tables.embeddings); the second table is `contents`.

    `contents` are the questions' hashes (CONTENT_HASHES).
    """
    keys, sites = contents["key"].to_numpy(), Sites(site_names)
    of_rows, ids = sites.unpack(keys)  # all of one site
    hashes = np.stack([contents[half].to_numpy() for half in ("high", "low")], axis=1)
    names, earlier, left_out = find_contents(reading.earlier, of_rows[0] if of_rows else "", ids)
    is_same = earlier.are_same(ids, hashes)
    vectors = np.zeros((len(ids), reading.reranker.dimensions), np.float16)
    folder = reading.earlier.embeddings if reading.earlier is not None else ""
    for name in names:
        table = storage.read_table(storage.join(folder, name)).sort_by("question_id")
        rows, are_here = indices_among(table["question_id"].to_numpy(), ids)
        vectors[are_here & is_same] = vectors_in(table["embedding"])[rows[are_here & is_same]]
    if not is_same.all():
        import torch

        torch.set_num_threads(1)  # a task has one CPU
        rows = rows_among(questions, keys[~is_same], _TEXTS).sort_by("key")
        texts = reread_texts(rows["title"].to_pylist(), rows["body_html"].to_pylist(), reading.code)
        vectors[~is_same] = sentence_vectors(reading.reranker, texts, reading.device)
    counts = {"rows_in": len(keys), "vectors as in the earlier run": int(is_same.sum()), LEFT_OUT: left_out}
    return Counted(embeddings_table(Embeddings(keys, vectors), sites), counts, contents)


def keyed_by(vectors: pa.Table, sites: Sites) -> pa.Table:
    """Return vectors (tables.embeddings) by key (keyed_vectors)."""
    columns = keys_in(vectors, sites.names), vectors["embedding"]
    return pa.table([*columns], schema=keyed_vectors(vectors.schema.field("embedding").type.list_size))


def with_keys(embedded: pa.Table, scope: _Scope) -> pa.Table:
    """Return the encoder's embeddings of questions of sites that are read whole, with their keys."""
    table = embedded.append_column("key", pa.array(keys_in(embedded, scope.sites.names)))
    return table.filter(pa.array(scope.is_whole(table["key"].to_numpy())))


def new_pairs(directed: pa.Table, listed: pa.Table) -> pa.Table:
    """Return the pairs of rows of NEIGHBOURS that are not in `listed` (KEY_PAIRS)."""
    pairs = undirected(directed).select(KEY_PAIRS.names)
    known = np.unique(pairs_in(listed), axis=0)
    return pairs.filter(pa.array(~are_pairs_among(known, pairs_in(pairs))))


def compare_unlisted(
    pairs: pa.Table, embedded: pa.Table, texts: pa.Table, rarities: pa.Table, sites: Sites, measure: Measure
) -> pa.Table:
    """Return pairs of which neither side lists the other with what their texts have in common (COMPARED)."""
    scores = unlisted(pairs_in(pairs), embeddings_of(embedded, sites, "embeddings"), measure)
    return compare(scores, texts, rarities)


def sample_density(vectors: Iterator[pa.Table], scope: _Scope, across_sites: bool) -> dict[str, Any]:
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


def reread_model(
    pairs: pa.Table,
    vectors: pa.Table,
    cuts: pa.Table,
    scope: _Scope,
    density: Mapping[str, Any],
    calibrated: Calibrated,
    is_default: bool,
    prior: str,
) -> dict[str, Any]:
    """Return `Reread` fitted to CALIBRATION_PAIRS: judged ones, and those that are read for their probability.

    Others with a link are read too, but they would say that such pairs are mostly duplicates.
    """
    ends, p = scope.sites.pack_pairs(pairs, "pairs"), pairs["probability"].to_numpy()
    cosines, is_judged = reranking.cosines_of(keyed_embeddings(vectors), ends), pairs["is_judged"].to_numpy()
    is_open = scope.is_whole(ends).all(axis=1) | _are_likely(ends[:, 0], p, cuts, len(scope.read))
    cosines[~(is_open | is_judged)] = np.nan
    columns = (pairs[name].to_numpy() for name in ("label", "weight", "is_judged", "log_rate"))
    features = np.array(pairs["features"].to_pylist()).reshape(len(pairs), len(FEATURES))
    first = Model.from_dict(calibrated["model"])
    own = read_prior(prior or (OF_TITLES if calibrated["titles_only"] else ""))
    model = reranking.fit_reread(
        Labelled(features, *columns), cosines, first, own, reranking.Density(**density), is_default
    )
    return model._asdict()


def rescore(scale: Scale, *evidence: pa.Table) -> pa.Table:
    """Return SCORED of pairs: of each set of them rows of COMPARED, of AROUND, and of `keyed_vectors`."""
    tables = []
    for compared, around, vectors in zip(*(evidence[start::3] for start in range(3)), strict=True):
        tables.append(scored_table(compared, around, scale, keyed_embeddings(vectors)))
    return pa.concat_tables(tables)
