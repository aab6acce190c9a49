"""embeddings, terms, known duplicates → the model of a pair's probability in this archive, and the search's floor.

    sample     one task          questions of development links, and others by a hash of their key
    lists      a task a file     the lists of these, and then of their neighbours, for ranks in both directions
    gather     one task          these lists together, and whose come next
    terms      a task a part     the terms of these questions, and the titles of their neighbours
    fit        one task          the model (clusters/calibration.py), and the floor from which all pairs are wanted

Memory: 8 bytes a question where some are chosen; 22 lists and texts and 400 titles a sampled question in `fit`.
"""

import logging

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.calibration import Evidence, Labelled, features_of, fit, own_share, places_of
from dupq.clusters.evidence import Around, Words, around, shared, title_cosines, title_leads
from dupq.clusters.prior import OF_TITLES, read_prior
from dupq.clusters.steps.make_terms import TermTables, titles_only, words_of
from dupq.evaluation.known_duplicates import chosen
from dupq.evaluation.verdict_files import read_verdicts
from dupq.execution.tasks import run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.job.run import Run
from dupq.job.table import Read, Table, Whole
from dupq.neighbours.nearest import Nearest
from dupq.runs.keys import read_keys, write_keys
from dupq.runs.layout import CalibrationFiles, NeighbourFiles
from dupq.settings.dedup import CalibrationSettings
from dupq.stages.calibration.sampled_pairs import SampledPairs, read_lists, sampled_pairs
from dupq.stages.neighbours.plan import Plan, read_plan
from dupq.stages.neighbours.tables import SearchRequest, nearest_table, read_nearest
from dupq.stages.represented_links import known_sets, write_known_sets
from dupq.tables import CALIBRATION_PAIRS, NEAREST, SAMPLE, TERMS
from dupq.text.keys import Sites, are_among, distinct, places_among, without

_log = logging.getLogger(__name__)
_FLOOR_PRECISION = 0.5  # of pairs that are kept although neither question lists the other
_FLOOR_STEPS = 100  # of the highest possible score: so that nights with nearly the same archive have the same floor


def calibrate(
    run: Run, files: CalibrationFiles, terms: TermTables, request: SearchRequest, settings: CalibrationSettings
) -> None:
    """Write the model for this archive."""
    plan = read_plan(files.neighbours.plan, request.settings)
    report = run_tasks("sample", _sample, [(files, request, plan, settings)])
    names = [file.relative for file in storage.list_files(files.neighbours.nearest, ".parquet")]
    for step in (1, 2):
        report.add(run_tasks("lists", _lists_of_file, [(files, request, step, name) for name in names]))
        report.add(run_tasks("gather", _gather_lists, [(files, request, step, names)]))
    lists = Read(_lists_of_sample, (files, request))
    words = run.map("words", terms_of_sample, terms.terms, Whole(lists), into=TERMS)
    fitted = run_tasks("fit", _fit, [(files, words, terms.rarities, request, settings)])
    report.add(fitted)
    run.report.add(report)
    run.report.rows_in, run.report.rows_out = plan.questions, fitted.rows_out


def _sample(files: CalibrationFiles, request: SearchRequest, plan: Plan, settings: CalibrationSettings) -> Counts:
    def make() -> Counts:
        sites = Sites(request.sites)
        keys = _embedded(files.neighbours, plan, sites)
        split = known_sets(files.links, files.representatives, files.encoder, keys, sites)
        write_known_sets(files.known, split)
        linked = chosen(split.questions_of("development"), settings.links)
        others = chosen(without(keys, split.questions), settings.sample)
        columns = [
            pa.array(np.concatenate([linked, others])),
            pa.array(np.arange(len(linked) + len(others)) < len(linked)),
        ]
        judged = read_verdicts(files.verdicts, sites)
        judged_keys = distinct(np.concatenate([judged.left, judged.right]))
        judged_keys = judged_keys[are_among(keys, judged_keys)]
        counts = {
            "rows_in": len(keys),
            "linked questions sampled": len(linked),
            "other questions sampled": len(others),
        }
        write_keys(files.wanted(1), np.concatenate([linked, others, judged_keys]))
        storage.write_table(files.sample, pa.table(columns, schema=SAMPLE), SAMPLE, counts)  # last: it marks the rest
        return counts

    return skip_or(files.sample, make)


def _embedded(files: NeighbourFiles, plan: Plan, sites: Sites) -> np.ndarray:
    """The keys of the questions that are compared with each other, sorted."""
    found = [np.zeros(0, np.int64)]
    for file in sorted({span.file for spans in plan.blocks for span in spans}):
        uri = storage.join(files.embeddings, file)
        table = storage.read_table(uri, columns=["site", "question_id"])
        found.append(sites.pack_columns(table["site"], table["question_id"], uri))
    keys = np.concatenate(found)
    keys.sort()
    return keys


def _lists_of_file(files: CalibrationFiles, request: SearchRequest, step: int, name: str) -> Counts:
    output = files.lists_in(step, name)

    def make() -> Counts:
        wanted = read_keys(files.wanted(step))
        keys, lists = read_nearest(storage.join(files.neighbours.nearest, name), request.settings.k)
        mine = are_among(wanted, keys)
        storage.write_table(output, nearest_table(keys[mine], Nearest(*(column[mine] for column in lists))), NEAREST)
        return {}

    return skip_or(output, make)


def _gather_lists(files: CalibrationFiles, request: SearchRequest, step: int, names: list[str]) -> Counts:
    output = files.lists(step)

    def make() -> Counts:
        table = pa.concat_tables([storage.read_table(files.lists_in(step, name), NEAREST) for name in names])
        storage.write_table(output, table.sort_by("key"), NEAREST)
        if step == 1:
            keys, lists = read_nearest(output, request.settings.k)
            write_keys(files.wanted(2), np.setdiff1d(lists.others[lists.others >= 0], keys))
        return {}

    return skip_or(output, make)


def _lists_of_sample(files: CalibrationFiles, request: SearchRequest, _: int) -> pa.Table:
    """Return whose terms the fit needs (KEYS), and of whom it needs more than titles."""
    lists = read_lists(files, request)
    keys = distinct(np.concatenate([lists.keys, lists.others[lists.others >= 0]]))
    return pa.table({"key": keys, "has_list": are_among(lists.keys, keys)})


def terms_of_sample(terms: pa.Table, sample: pa.Table) -> pa.Table:
    """Return the terms of the questions whose lists are read, and the titles of their neighbours."""
    places, are_there = places_among(sample["key"].to_numpy(), terms["key"].to_numpy())
    has_list = are_there & sample["has_list"].to_numpy()[places]
    own, others = terms.filter(pa.array(has_list)), terms.filter(pa.array(are_there & ~has_list))
    return pa.concat_tables([own, titles_only(others)])


def _fit(
    files: CalibrationFiles, terms: Table, rarity: Table, request: SearchRequest, settings: CalibrationSettings
) -> Counts:
    sites = Sites(request.sites)
    lists, rarities = read_lists(files, request), rarity.read(0)["rarity"].to_numpy()
    found = sampled_pairs(files, request, lists)
    places, words = words_of(Whole(terms).read())
    shipped = OF_TITLES if _are_titles(words, places.of(lists.keys)) else ""
    prior = read_prior(settings.prior or shipped)
    left, right = places.of(found.left), places.of(found.right)
    rows, indices = np.nonzero(lists.others >= 0)
    queries, others = (places.of(some) for some in (lists.keys[rows], lists.others[rows, indices]))
    listed = around(queries, title_cosines(words.titles, queries, others, rarities), len(places.keys))
    common = shared(words, left, right, rarities)
    around_left, around_right = (Around(*(column[some] for column in listed)) for some in (left, right))
    listings = found.listing_left, found.listing_right
    leads = title_leads(common.title_cosine, (around_left, around_right), listings)
    indices = places_of(found.scores, found.reference)
    evidence = Evidence(indices, found.listing_left, found.listing_right, common, leads)
    features = features_of(evidence, request.settings.k)
    model = fit(Labelled(features, found.labels, found.weights, found.is_judged, found.log_rates), prior)
    probabilities = model.probabilities(features)
    floor = _floor(found.scores, probabilities, found.counts, request)
    record = {
        "model": model.to_dict(),
        "reference": found.reference.tolist(),
        "floor": floor if np.isfinite(floor) else None,
        "development_links": int(found.is_linked.sum()),
        "judged_pairs": int(found.is_judged.sum()),
        "development_sets": found.sets,
        "sampled_questions": found.questions,
        "own_share": own_share(model, prior, features),
        "prior_sites": list(prior.sites),
        "fitness": storage.read_json(files.fitness),
    }
    _write_pairs(files, sites, found, features, probabilities)
    storage.write_json(files.output, record)
    return {"rows_out": len(features), "development pairs among neighbours": int(found.is_linked.sum())}


def _are_titles(words: Words, rows: np.ndarray) -> bool:
    """Return whether the questions of these rows have titles and no bodies: a text holds both."""
    of_titles, of_texts = (np.diff(terms.offsets)[rows] for terms in (words.titles, words.texts))
    return len(rows) > 0 and bool((of_titles == of_texts).all())


def _floor(scores: np.ndarray, probabilities: np.ndarray, counts: np.ndarray, request: SearchRequest) -> float:
    """The lowest score from which half of the pairs are expected to be duplicates; infinite if there is none."""
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum((probabilities * counts)[order]) / np.maximum(np.cumsum(counts[order]), 1e-300)
    is_last = np.append(scores[order][1:] != scores[order][:-1], True)[: len(order)]
    reached = np.flatnonzero((right >= _FLOOR_PRECISION) & is_last)
    if not len(reached):
        return np.inf
    step = request.measure.highest / _FLOOR_STEPS
    return float(np.ceil(scores[order][reached[-1]] / step) * step)


def _write_pairs(
    files: CalibrationFiles, sites: Sites, found: SampledPairs, features: np.ndarray, p: np.ndarray
) -> None:
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
    storage.write_table(files.pairs, pa.table(columns, schema=CALIBRATION_PAIRS), CALIBRATION_PAIRS)
