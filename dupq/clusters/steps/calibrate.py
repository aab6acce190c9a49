"""neighbours, terms, known duplicates → the model of a pair's probability in this archive, and the search's floor.

    sample               questions of development links, and others by a hash of their key
    lists                the neighbours of these and of judged questions
    lists_of_neighbours  those of their neighbours, for ranks in both directions
    words                the terms of the questions that have a list here, and the titles of their neighbours
    calibration          the model (clusters/calibration.py), and the floor from which all pairs are wanted
    pairs                what it was fitted to

Memory: 8 bytes a question where some are chosen; 22 lists and texts and 400 titles a sampled question in the last task.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.clusters.calibration import Calibrated, Evidence, Labelled, features_of, fit, own_share, places_of
from dupq.clusters.evidence import Around, Words, around, shared, title_cosines, title_leads
from dupq.clusters.prior import OF_TITLES, read_prior
from dupq.clusters.steps.make_terms import TermTables, titles_only, words_of
from dupq.clusters.steps.sampled_pairs import SampledPairs, lists_in, sampled_pairs
from dupq.encoders.description import FitnessEntry
from dupq.evaluation.known_duplicates import chosen
from dupq.evaluation.verdict_files import Judged
from dupq.job.run import Counted, Run
from dupq.job.table import Each, Partitioned, Table, Whole
from dupq.links.parts import represented_by, represented_split, sets_in, sets_table
from dupq.neighbours.measure import Measure
from dupq.runs.keys import pairs_in, sorted_keys
from dupq.settings.dedup import CalibrationSettings
from dupq.tables import CALIBRATION_PAIRS, KNOWN_SETS, NEAREST, SAMPLE, TERMS
from dupq.text.keys import Sites, are_among, distinct, without

_FLOOR_PRECISION = 0.5  # of pairs that are kept although neither question lists the other
_FLOOR_STEPS = 100  # of the highest possible score: so that nights with nearly the same archive have the same floor


@dataclass(frozen=True)
class Asked:
    """What a run is calibrated for."""

    sites: list[str]
    measure: Measure
    k: int  # neighbours of each question
    judged: Judged
    settings: CalibrationSettings


@dataclass(frozen=True)
class Known:
    """Known duplicates, and which questions may be calibrated on."""

    links: Whole  # KEY_PAIRS
    representatives: Whole  # REPRESENTATIVES
    seen: dict[str, np.ndarray]  # keys that the encoder was trained, tuned and tested on, by part


def calibrate(
    run: Run,
    nearest: Partitioned,
    keys: Partitioned,
    terms: TermTables,
    known: Known,
    fitness: FitnessEntry,
    asked: Asked,
) -> tuple[Table, Calibrated]:
    """Return the pairs that the model for this archive rests on (CALIBRATION_PAIRS), and record it.

    `nearest` are the lists of all questions (NEAREST), `keys` their keys alone.
    """
    sets, pairs = run.table("known_sets", KNOWN_SETS), run.table("pairs", CALIBRATION_PAIRS)
    inputs = Each(keys), known.links, known.representatives, known.seen, asked.settings
    sample = run.map("sample", sample_of, *inputs, into=SAMPLE, beside=sets)
    own = Whole(run.gather("lists", lists_of, nearest, Whole(sample), asked.judged, into=NEAREST))
    others = Whole(run.gather("lists_of_neighbours", lists_of_neighbours, nearest, own, into=NEAREST))
    words = Whole(run.map("words", terms_of_lists, terms.terms, own, others, into=TERMS))
    rest = Whole(terms.rarities), Whole(sample), Whole(sets), sample.counts(0)["rows_in"], fitness, asked
    return pairs, run.record("calibration", calibration, own, others, words, *rest, beside=pairs)


def sample_of(
    keys: Iterator[pa.Table],
    links: pa.Table,
    representatives: pa.Table,
    seen: dict[str, np.ndarray],
    settings: CalibrationSettings,
) -> Counted:
    """Return the sampled questions (SAMPLE); the second table are the known duplicates by representatives."""
    every, represent, pairs = sorted_keys(keys), represented_by(representatives), pairs_in(links)
    split = represented_split(pairs[are_among(every, represent(pairs)).all(axis=1)], seen, represent)
    linked = chosen(split.questions_of("development"), settings.links)
    others = chosen(without(every, split.questions), settings.sample)
    is_linked = np.arange(len(linked) + len(others)) < len(linked)
    sample = pa.table([np.concatenate([linked, others]), is_linked], schema=SAMPLE)
    sampled = {"linked questions sampled": len(linked), "other questions sampled": len(others)}
    return Counted(sample, {"rows_in": len(every), **sampled}, sets_table(split))


def lists_of(nearest: pa.Table, sample: pa.Table, judged: Judged) -> pa.Table:
    """Return the lists of sampled and judged questions."""
    wanted = distinct(np.concatenate([sample["key"].to_numpy(), judged.left, judged.right]))
    return nearest.filter(pa.array(are_among(wanted, nearest["key"].to_numpy())))


def lists_of_neighbours(nearest: pa.Table, own: pa.Table) -> pa.Table:
    """Return the lists of the questions that `own` lists have, but for those in `own`."""
    wanted = without(_listed(own), np.sort(own["key"].to_numpy()))
    return nearest.filter(pa.array(are_among(wanted, nearest["key"].to_numpy())))


def _listed(*lists: pa.Table) -> np.ndarray:
    """Return the questions in lists (int64), each once."""
    return distinct(np.concatenate([pc.list_flatten(table["neighbours"]).to_numpy() for table in lists]))


def terms_of_lists(terms: pa.Table, *lists: pa.Table) -> pa.Table:
    """Return the terms of the questions that have a list, and the titles of their neighbours."""
    keys = terms["key"].to_numpy()
    has_list = are_among(sorted_keys(lists), keys)
    is_listed = are_among(_listed(*lists), keys) & ~has_list
    return pa.concat_tables([terms.filter(pa.array(has_list)), titles_only(terms.filter(pa.array(is_listed)))])


def calibration(
    own: pa.Table,
    others: pa.Table,
    terms: pa.Table,
    rarities: pa.Table,
    sample: pa.Table,
    known_sets: pa.Table,
    population: int,
    fitness: FitnessEntry,
    asked: Asked,
) -> Counted:
    """Return the model and what it rests on; the second table are the pairs that it was fitted to.

    `population` is the number of questions that were sampled from.
    """
    lists, rarity = lists_in([own, others], asked.k, asked.measure), rarities["rarity"].to_numpy()
    found = sampled_pairs(sample, population, sets_in(known_sets), asked.judged, lists)
    places, words = words_of(terms)
    shipped = OF_TITLES if _are_titles(words, places.of(lists.keys)) else ""
    prior = read_prior(asked.settings.prior or shipped)
    left, right = places.of(found.left), places.of(found.right)
    rows, columns = np.nonzero(lists.others >= 0)
    queries, listed = (places.of(some) for some in (lists.keys[rows], lists.others[rows, columns]))
    sums = around(queries, title_cosines(words.titles, queries, listed, rarity), len(places.keys))
    common = shared(words, left, right, rarity)
    around_left, around_right = (Around(*(column[some] for column in sums)) for some in (left, right))
    listings = found.listing_left, found.listing_right
    leads = title_leads(common.title_cosine, (around_left, around_right), listings)
    features = features_of(Evidence(places_of(found.scores, found.reference), *listings, common, leads), asked.k)
    model = fit(Labelled(features, found.labels, found.weights, found.is_judged, found.log_rates), prior)
    probabilities = model.probabilities(features)
    floor = _floor(found.scores, probabilities, found.counts, asked.measure)
    record: Calibrated = {
        "model": model.to_dict(),
        "reference": found.reference.tolist(),
        "floor": floor if np.isfinite(floor) else None,
        "development_links": int(found.is_linked.sum()),
        "judged_pairs": int(found.is_judged.sum()),
        "development_sets": found.sets,
        "sampled_questions": found.questions,
        "own_share": own_share(model, prior, features),
        "prior_sites": list(prior.sites),
        "fitness": fitness,
    }
    counts = {"rows_out": len(features), "development pairs among neighbours": int(found.is_linked.sum())}
    return Counted(record, counts, _fitted(Sites(asked.sites), found, features, probabilities))


def _are_titles(words: Words, rows: np.ndarray) -> bool:
    """Return whether the questions of these rows have titles and no bodies: a text holds both."""
    of_titles, of_texts = (np.diff(terms.offsets)[rows] for terms in (words.titles, words.texts))
    return len(rows) > 0 and bool((of_titles == of_texts).all())


def _floor(scores: np.ndarray, probabilities: np.ndarray, counts: np.ndarray, measure: Measure) -> float:
    """The lowest score from which half of the pairs are expected to be duplicates; infinite if there is none."""
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum((probabilities * counts)[order]) / np.maximum(np.cumsum(counts[order]), 1e-300)
    is_last = np.append(scores[order][1:] != scores[order][:-1], True)[: len(order)]
    reached = np.flatnonzero((right >= _FLOOR_PRECISION) & is_last)
    if not len(reached):
        return np.inf
    step = measure.highest / _FLOOR_STEPS
    return float(np.ceil(scores[order][reached[-1]] / step) * step)


def _fitted(sites: Sites, found: SampledPairs, features: np.ndarray, p: np.ndarray) -> pa.Table:
    columns = [
        *sites.columns(found.left),
        *sites.columns(found.right),
        pa.array(found.scores.astype(np.float32)),
        pa.array(found.is_linked),
        pa.array(found.is_judged),
        pa.array(found.labels),
        pa.array(found.counts),
        pa.array(found.weights),
        pa.array(found.log_rates),
        pa.array(p),
        pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1]),
    ]
    return pa.table(columns, schema=CALIBRATION_PAIRS)
