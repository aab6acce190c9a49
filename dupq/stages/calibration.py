"""neighbours, terms, known duplicates → the model of a pair's probability in this archive, and the search's floor.

    sample               questions of development links, and others by a hash of their key
    lists                the neighbours of these and of judged questions
    lists_of_neighbours  the neighbours of their neighbours, for ranks in both directions
    words                the terms of the questions with a list in these tables, and the titles of their neighbours
    calibration          the model (clusters/calibration.py), and the floor from which all pairs become candidates
    pairs                what the model was fitted to

Memory: 8 bytes a question to choose the sample; in the last task 22 lists and texts and 400 titles a sampled question.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds
from dupq.clusters.calibration import OF_TITLES, Calibrated, Labelled, features_of, fit, own_share, read_prior
from dupq.clusters.decision import compared, listed_rows, undirected
from dupq.clusters.evidence import title_context, title_cosines, titles_only, words_of
from dupq.encoders.saved import Fitness
from dupq.evaluation.sampling import Judged
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Streamed, Table
from dupq.kinds import JSON, columns, streamed
from dupq.links import Split, represented_by, represented_split, sets_in, sets_table
from dupq.neighbours.embeddings import Measure
from dupq.settings.sections import CalibrationSettings
from dupq.stages.partition import RunKnowledge
from dupq.stages.terms import TermTables
from dupq.tables import CALIBRATION_PAIRS, KEY_PAIRS, KNOWN_SETS, NEAREST, RARITIES, REPRESENTATIVES, SAMPLE, TERMS
from dupq.text.keys import Sites, are_among, distinct, pair_indices, pairs_in, sample_by_hash, sorted_keys, without

_REFERENCE = 1_000
_FLOOR_PRECISION = 0.5  # expected of pairs that become candidates although neither question lists the other
_FLOOR_STEPS = 100  # of the highest possible score, so that nights with nearly the same archive have the same floor
_LISTED = columns(NEAREST, "key", "neighbours")


class SampledPairs(NamedTuple):
    """A row for each sampled question and each neighbour of it."""

    rows: np.ndarray  # int64, of the pair in CANDIDATES
    is_linked: np.ndarray  # bool: known duplicates of the development part
    is_judged: np.ndarray  # bool: people gave a verdict
    labels: np.ndarray  # bool: linked, or judged to be the same
    counts: np.ndarray  # float64: how many pairs of the archive a row represents
    weights: np.ndarray  # float64, in the likelihood: less where sets are large, or more pairs of the kind are drawn
    log_rates: np.ndarray  # float64: ln of how much more a linked pair counts than another one, by how they are drawn


class Calibration(NamedTuple):
    """The model of this archive, and the pairs that it was fitted to."""

    pairs: Table[kinds.CalibrationPair]
    model: Calibrated


@dataclass(frozen=True)
class Basis:
    """What the model rests on, besides tables."""

    population: int  # questions that the sample was drawn from
    sites: Sites
    judged: Judged
    fitness: Fitness
    measure: Measure
    k: int  # neighbours that a question lists
    prior: str  # URI of another prior than dupq's, or empty


@stage("calibrate", version=11, folder="calibration")
def calibrate(
    run: Run,
    nearest: Table[kinds.Nearest],
    terms: TermTables,
    known: RunKnowledge,
    fitness: Fitness,
    measure: Measure,
    k: int,
    settings: CalibrationSettings,
) -> Calibration:
    """Make the model for this archive, given the lists of all questions, of `k` neighbours each."""
    sets, pairs = run.table("known_sets", KNOWN_SETS), run.table("pairs", CALIBRATION_PAIRS)
    copies = Broadcast(known.representatives)
    sample = run.map("sample", sample_of, second=sets)(Streamed(nearest), known.pairs, copies, known.seen, settings)
    population = run.report.rows_in  # so far, of that step alone
    own = Broadcast(run.gather("lists", lists_of)(nearest, Broadcast(sample), known.judged))
    others = Broadcast(run.gather("lists_of_neighbours", lists_of_neighbours)(nearest, own))
    words = Broadcast(run.map("words", terms_of_lists)(terms.terms, own, others))
    basis = Basis(population, known.sites, known.judged, fitness, measure, k, settings.prior)
    model = run.record("calibration", calibration, pairs)(
        own, others, words, Broadcast(terms.rarities), Broadcast(sample), Broadcast(sets), basis
    )
    return Calibration(pairs, model)


@step(streamed(columns(NEAREST, "key")), KEY_PAIRS, REPRESENTATIVES, makes=SAMPLE, second=KNOWN_SETS)
def sample_of(
    keys: Iterator[pa.Table],
    links: pa.Table,
    representatives: pa.Table,
    seen: dict[str, np.ndarray],
    settings: CalibrationSettings,
) -> StepResult[pa.Table]:
    """Return the sampled questions (SAMPLE); the second table has the known duplicates, as representatives."""
    every, represent, pairs = sorted_keys(keys), represented_by(representatives), pairs_in(links)
    split = represented_split(pairs[are_among(every, represent(pairs)).all(axis=1)], seen, represent)
    linked = sample_by_hash(split.questions_of("development"), settings.links)
    others = sample_by_hash(without(every, split.questions), settings.sample)
    is_linked = np.arange(len(linked) + len(others)) < len(linked)
    sample = pa.table([np.concatenate([linked, others]), is_linked], schema=SAMPLE)
    counts = {"linked questions sampled": len(linked), "other questions sampled": len(others)}
    return StepResult(sample, {"rows_in": len(every), **counts}, sets_table(split))


@step(NEAREST, columns(SAMPLE, "key"), makes=NEAREST)
def lists_of(nearest: pa.Table, sample: pa.Table, judged: Judged) -> pa.Table:
    """Return the lists of sampled and judged questions."""
    questions = distinct(np.append(sample["key"].to_numpy(), judged.pairs))
    return nearest.filter(pa.array(are_among(questions, nearest["key"].to_numpy())))


@step(NEAREST, _LISTED, makes=NEAREST)
def lists_of_neighbours(nearest: pa.Table, own: pa.Table) -> pa.Table:
    """Return the lists of the neighbours in `own` that have no list there."""
    neighbours = without(_listed(own), np.sort(own["key"].to_numpy()))
    return nearest.filter(pa.array(are_among(neighbours, nearest["key"].to_numpy())))


def _listed(*lists: pa.Table) -> np.ndarray:
    """Return the neighbours in lists (int64), each once."""
    return distinct(np.concatenate([pc.list_flatten(table["neighbours"]).to_numpy() for table in lists]))


@step(TERMS, _LISTED, _LISTED, makes=TERMS)
def terms_of_lists(terms: pa.Table, own: pa.Table, others: pa.Table) -> pa.Table:
    """Return the terms of the questions with a list, and the titles of their neighbours."""
    keys = terms["key"].to_numpy()
    has_list = are_among(sorted_keys([own, others]), keys)
    is_listed = are_among(_listed(own, others), keys) & ~has_list
    return pa.concat_tables([terms.filter(pa.array(has_list)), titles_only(terms.filter(pa.array(is_listed)))])


@step(NEAREST, NEAREST, TERMS, RARITIES, SAMPLE, KNOWN_SETS, makes=JSON, second=CALIBRATION_PAIRS)
def calibration(
    own: pa.Table,
    others: pa.Table,
    terms: pa.Table,
    rarities: pa.Table,
    sample: pa.Table,
    known_sets: pa.Table,
    basis: Basis,
) -> StepResult[Calibrated]:
    """Return the model and what it rests on; the second table has the pairs that it was fitted to."""
    directed, rarity = listed_rows([own, others], basis.k, basis.measure), rarities["rarity"].to_numpy()
    split, is_development = sets_in(known_sets), sample["is_linked"].to_numpy()
    candidates = undirected(directed)
    pairs = sampled_pairs(sample, basis.population, split, basis.judged, directed, candidates)
    reference = usual_scores(directed, sample)
    rows_by_key, words = words_of(terms)
    rows = rows_by_key.find(sorted_keys([own, others]))
    in_titles, in_texts = (np.diff(terms.offsets)[rows] for terms in (words.titles, words.texts))
    titles_only = len(rows) > 0 and bool((in_titles == in_texts).all())  # no body: a text consists of both
    prior = read_prior(basis.prior or (OF_TITLES if titles_only else ""))
    queries, listed = (rows_by_key.find(directed[name].to_numpy()) for name in ("query", "neighbour"))
    alike = title_context(directed["query"].to_numpy(), title_cosines(words.titles, queries, listed, rarity))
    evidence = compared(candidates.take(pa.array(pairs.rows)), rows_by_key, words, rarity)
    features = features_of(evidence, alike, reference, basis.k)
    # pairs that titles alone decide say nothing of open ones; the prior was learned without them too
    is_open = (evidence["same_asking"].to_numpy() == 0) | (prior.model.same_asking == 0)
    pairs = pairs._replace(weights=pairs.weights * is_open)
    model = fit(Labelled(features, pairs.labels, pairs.weights, pairs.is_judged, pairs.log_rates), prior)
    probabilities = model.probabilities_of(evidence, features)
    scores = evidence["similarity"].to_numpy().astype(np.float64)
    record: Calibrated = {
        "model": model.to_dict(),
        "reference": reference.tolist(),
        "floor": _floor(scores, probabilities, pairs.counts, basis.measure),
        "development_links": int(pairs.is_linked.sum()),
        "judged_pairs": int(pairs.is_judged.sum()),
        "development_sets": len(np.unique(split.set_of(sample["key"].to_numpy()[is_development]))),
        "sampled_questions": len(sample),
        "own_share": own_share(model, prior, features),
        "prior_sites": list(prior.sites),
        "error": prior.error,
        "titles_only": titles_only,
        "fitness": basis.fitness,
    }
    counts = {"rows_out": len(features), "development pairs among neighbours": int(pairs.is_linked.sum())}
    lists = pa.FixedSizeListArray.from_arrays(features.ravel(), features.shape[1])
    ends = (column for side in pairs_in(evidence).T for column in basis.sites.columns(side))
    columns = *ends, evidence["similarity"], *pairs[1:], probabilities, lists
    return StepResult(record, counts, pa.table([*columns], schema=CALIBRATION_PAIRS))


def sampled_pairs(
    sample: pa.Table, population: int, split: Split, judged: Judged, directed: pa.Table, candidates: pa.Table
) -> SampledPairs:
    """Return the pairs that calibration may read: judged ones, and all of the sampled questions.

    `sample` (SAMPLE) was drawn from `population` questions. `directed` (NEIGHBOURS) has their lists, and `candidates`
    (CANDIDATES) the same as pairs. Questions with and without links are sampled at different rates, so a pair that is
    not linked counts less where more of its kind are drawn: in an archive of known duplicates nearly all such pairs are
    listed by linked questions, in others nearly none.
    """
    sampled, is_development = sample["key"].to_numpy(), sample["is_linked"].to_numpy()
    lists = directed.filter(pc.is_in(directed["query"], sample["key"].combine_chunks()))
    queries, others = lists["query"].to_numpy(), lists["neighbour"].to_numpy()
    rows = pair_indices(pairs_in(candidates), np.sort(np.stack([queries, others], axis=1), axis=1))
    from_linked = np.isin(queries, sampled[is_development])
    is_linked = from_linked & split.in_one_set(queries, others)
    is_mutual = (candidates["rank_left"].to_numpy() > 0) & (candidates["rank_right"].to_numpy() > 0)
    both = np.where(is_mutual[rows], 2.0, 1.0)  # rows of a pair that lists each other
    linked_share = max(is_development.sum() / max(1, len(split.questions)), 1e-9)
    other_share = max((~is_development).sum() / max(1, population - len(split.questions)), 1e-9)
    share = np.where(from_linked, linked_share, other_share)
    least = share.min(initial=1.0)
    drawn = SampledPairs(
        rows,
        is_linked=is_linked,
        is_judged=np.zeros(len(queries), bool),
        labels=is_linked,
        counts=1 / share / both,
        weights=_weight(split.set_of(queries), is_linked) * np.where(is_linked, 1.0, least / share) / both,
        log_rates=np.full(len(queries), np.log(linked_share / least)),
    )
    verdicts = pair_indices(pairs_in(candidates), judged.pairs)
    of_test = split.in_one_set(*judged.pairs.T) & np.isin(judged.pairs[:, 0], split.questions_of("test"))
    are_read = (verdicts >= 0) & (judged.verdicts >= 0) & ~of_test  # quality is measured on the test part
    verdicts, are_same = verdicts[are_read], judged.verdicts[are_read] == 1
    none, every, zeros = (np.full(len(verdicts), value) for value in (False, True, 0.0))
    by_people = SampledPairs(verdicts, none, every, are_same, zeros, every, zeros)
    kept = ~np.isin(rows, verdicts)
    columns = zip(drawn, by_people, strict=True)
    return SampledPairs(*(np.concatenate([column[kept], judged_column]) for column, judged_column in columns))


def usual_scores(directed: pa.Table, sample: pa.Table) -> np.ndarray:
    """Return the best scores of sampled questions (float64, sorted), given the lists of at least these (NEIGHBOURS).

    Questions with known duplicates are left out, unless no other one lists any. At most
    `_REFERENCE` are kept, evenly spread, so that features do not depend on the size of the sample.
    """
    best = directed.filter(pc.equal(directed["rank"], 1))
    queries, scores = best["query"].to_numpy(), best["similarity"].to_numpy().astype(np.float64)
    keys, is_linked = sample["key"].to_numpy(), sample["is_linked"].to_numpy()
    usual = np.isin(queries, keys[~is_linked])
    reference = np.sort(scores[usual if usual.any() else np.isin(queries, keys)])
    if len(reference) <= _REFERENCE:
        return reference
    return np.quantile(reference, np.linspace(0, 1, _REFERENCE), method="nearest")


def _weight(sets: np.ndarray, is_linked: np.ndarray) -> float:
    """Return a pair's weight: together the linked pairs weigh as much as one per set, in both directions."""
    pairs = np.unique(sets[is_linked], return_counts=True)[1]
    return float(np.minimum(pairs, 2).sum() / pairs.sum()) if len(pairs) else 1.0


def _floor(scores: np.ndarray, probabilities: np.ndarray, counts: np.ndarray, measure: Measure) -> float | None:
    """Return the lowest score from which half of the pairs are expected to be duplicates, if there is one."""
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum((probabilities * counts)[order]) / np.maximum(np.cumsum(counts[order]), 1e-300)
    is_last = np.append(scores[order][1:] != scores[order][:-1], True)[: len(order)]
    is_enough = np.flatnonzero((right >= _FLOOR_PRECISION) & is_last)
    if not len(is_enough):
        return None
    step = measure.highest / _FLOOR_STEPS
    return float(np.ceil(scores[order][is_enough[-1]] / step) * step)
