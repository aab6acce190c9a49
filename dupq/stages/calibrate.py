"""embeddings, terms, known duplicates → the probability of a pair in this archive.

    fitness    one task          whether the encoder knows the archive, before anything is searched
    sample     one task          questions of development links, and others by a hash of their key
    searches   search_some.py    these in the whole archive, then their neighbours, for the ranks in both directions
    terms      a task a part     the terms of all questions in these lists
    fit        one task          the model (clusters/calibration.py), and the floor of the all-pairs search

Memory: 8 bytes a question in `fitness` and `sample`; 22 lists and texts a sampled question in `fit`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from dupq import storage
from dupq.clusters.calibration import Labelled, Model, features_of, fit, own_share, places_of, threshold_for
from dupq.clusters.evidence import shared
from dupq.clusters.prior import read_prior
from dupq.config import CalibrationSettings
from dupq.encoders.description import read_description, read_split
from dupq.errors import DupqError
from dupq.links.parts import represented_split
from dupq.stages.links import known_duplicates
from dupq.stages.neighbour_plan import Plan
from dupq.stages.neighbour_tables import Asked, NeighbourFiles, read_nearest
from dupq.stages.review import read_verdicts
from dupq.stages.search_some import SomeFiles, search_some, write_keys
from dupq.stages.signatures import NearFiles
from dupq.stages.tasks import Counts, Report, run_tasks, skip_or
from dupq.stages.terms import TermFiles, read_rarities, read_terms, words_of
from dupq.stages.training import all_keys, texts_among
from dupq.tables import CALIBRATION_PAIRS, KEY_PAIRS, KNOWN_SETS, REPRESENTATIVES, SAMPLE, TERMS
from dupq.text.keys import Sites
from dupq.training.split import Split

_FLOOR_PRECISION = 0.5  # of pairs that are kept although neither question lists the other
_FLOOR_STEPS = 100  # of the highest possible score: so that nights with nearly the same archive have the same floor
_REFERENCE = 1_000  # quantiles of the best scores that are kept


@dataclass(frozen=True)
class CalibrationFiles:
    """What calibration reads, and where it writes."""

    folder: str
    neighbours: NeighbourFiles
    terms: TermFiles
    representatives: str
    encoder: str
    links: str | None
    verdicts: str | None = None

    @property
    def output(self) -> str:
        """The model and what it rests on."""
        return storage.join(self.folder, "calibration.json")

    @property
    def pairs(self) -> str:
        """The sampled pairs, with features and labels."""
        return storage.join(self.folder, "pairs.parquet")

    @property
    def sample(self) -> str:
        """The sampled questions."""
        return storage.join(self.folder, "sample.parquet")

    @property
    def known(self) -> str:
        """The known duplicates among the questions that are searched, and their parts."""
        return storage.join(self.folder, "known_sets.parquet")

    @property
    def fitness(self) -> str:
        """What the encoder reaches on this archive."""
        return storage.join(self.folder, "fitness.json")

    def search(self, number: int) -> SomeFiles:
        """The files of the first (1) and second (2) search."""
        return SomeFiles(self.neighbours, storage.join(self.folder, f"search-{number}"))

    def words(self, part: int) -> str:
        """The terms of a part's sampled questions."""
        return storage.join(self.folder, "words", f"part-{part:05d}.parquet")


def calibrate(files: CalibrationFiles, asked: Asked, plan: Plan, settings: CalibrationSettings) -> Report:
    """Write the model for this archive. Raises DupqError for an encoder that does not know it."""
    report = run_tasks("fitness", _fitness, [(files, settings)])
    _check_fitness(files, settings)
    report.add(run_tasks("sample", _sample, [(files, asked, plan, settings)]))
    search_some(files.search(1), asked, plan)
    report.add(run_tasks("second search", _second_wanted, [(files, asked)]))
    report.add(search_some(files.search(2), asked, plan))
    run_tasks("terms", _words_of_part, [(files, asked, part) for part in range(files.terms.parts)])
    fitted = run_tasks("fit", _fit, [(files, asked, settings)])
    report.add(fitted)
    report.rows_in, report.rows_out = plan.questions, fitted.rows_out
    return report


def read_calibration(files: CalibrationFiles) -> dict[str, Any]:
    """What was found, with the model as a `Model` and the reference as an array."""
    found = storage.read_json(files.output)
    return {**found, "model": Model.from_dict(found["model"]), "reference": np.array(found["reference"])}


def _fitness(files: CalibrationFiles, settings: CalibrationSettings) -> Counts:
    def make() -> None:
        import torch

        from dupq.encoders.fitness import SAMPLE as QUESTIONS
        from dupq.encoders.fitness import Reader, fitness
        from dupq.encoders.saved import load

        torch.set_num_threads(1)
        saved = load(files.encoder)
        keys = chosen_keys(all_keys(files.terms.texts), QUESTIONS)
        tables = [texts_among(file.uri, keys) for file in storage.list_files(files.terms.texts, ".parquet")]
        reader = Reader(saved.network, saved.vocabulary, saved.settings)
        found = fitness(reader, pa.concat_tables(tables).sort_by("key").combine_chunks())
        storage.write_json(files.fitness, vars(found))

    if not storage.exists(files.fitness):
        make()
    return {}


def _check_fitness(files: CalibrationFiles, settings: CalibrationSettings) -> None:
    """Say it, and stop if that is wanted, where the encoder knows far less of this archive than of its own."""
    here, trained = storage.read_json(files.fitness), read_description(files.encoder)["fitness"]
    faults = []
    if here["unknown_words"] > max(2 * trained["unknown_words"], trained["unknown_words"] + settings.unknown_words):
        faults.append(
            f"{here['unknown_words']:.0%} of the words are unknown to it ({trained['unknown_words']:.0%} where it was "
            "trained)"
        )
    found, found_then = here["bodies_found"], trained["bodies_found"]
    if None not in (found, found_then) and found < settings.bodies_found * found_then:
        faults.append(f"it finds {found:.0%} of the bodies by their titles ({found_then:.0%} where it was trained)")
    if not faults:
        return
    said = f"{files.encoder}: the encoder does not know this archive: {'; '.join(faults)}"
    if settings.unfit == "stop":
        raise DupqError(
            f"{said}. Train one on this archive, or go on all the same with --set calibration.unfit=continue"
        )
    print(f"warning: {said}", flush=True)


def chosen_keys(keys: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the keys, by a hash of the key, sorted: the same ones whatever else there is."""
    if len(keys) <= most:
        return np.sort(keys)
    hashes = np.array([xxhash.xxh3_64_intdigest(key.tobytes()) for key in keys.astype("<i8")], np.uint64)
    return np.sort(keys[np.argsort(hashes, kind="stable")[:most]])


def _sample(files: CalibrationFiles, asked: Asked, plan: Plan, settings: CalibrationSettings) -> Counts:
    def make() -> Counts:
        sites = Sites(asked.sites)
        keys = _embedded(files.neighbours, plan, sites)
        split = _split(files, keys, sites)
        _write_split(files.known, split)
        linked = chosen_keys(split.questions_of("development"), settings.links)
        others = chosen_keys(np.setdiff1d(keys, split.questions, assume_unique=True), settings.sample)
        columns = [
            pa.array(np.concatenate([linked, others])),
            pa.array(np.arange(len(linked) + len(others)) < len(linked)),
        ]
        judged = read_verdicts(files.verdicts, sites)
        judged_keys = np.intersect1d(np.concatenate([judged.left, judged.right]), keys)
        counts = {
            "rows_in": len(keys),
            "linked questions sampled": len(linked),
            "other questions sampled": len(others),
        }
        storage.write_table(files.sample, pa.table(columns, schema=SAMPLE), SAMPLE, counts)
        write_keys(files.search(1).wanted, np.concatenate([linked, others, judged_keys]))
        return counts

    return skip_or(files.sample, make)


def _embedded(files: NeighbourFiles, plan: Plan, sites: Sites) -> np.ndarray:
    """The keys of the questions that are searched, sorted."""
    found = [np.zeros(0, np.int64)]
    for file in sorted({span.file for spans in plan.blocks for span in spans}):
        uri = storage.join(files.embeddings, file)
        table = storage.read_table(uri, columns=["site", "question_id"])
        found.append(sites.pack_columns(table["site"], table["question_id"], uri))
    return np.sort(np.concatenate(found))


def representative_links(links: str | None, representatives: str, sites: Sites) -> np.ndarray:
    """The known duplicates as pairs of representatives (int64, shape (m, 2), left < right), each once."""
    if links is None:
        return np.zeros((0, 2), np.int64)
    table = storage.read_table(representatives, REPRESENTATIVES)
    pairs = represented(known_duplicates(links, sites), table["key"].to_numpy(), table["representative"].to_numpy())
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def _split(files: CalibrationFiles, keys: np.ndarray, sites: Sites) -> Split:
    """The known duplicates among the questions `keys` that are searched, and those that these represent."""
    links = np.zeros((0, 2), np.int64) if files.links is None else known_duplicates(files.links, sites)
    table = storage.read_table(files.representatives, REPRESENTATIVES)
    members, standing = table["key"].to_numpy(), table["representative"].to_numpy()
    links = links[np.isin(represented(links, members, standing), keys).all(axis=1)]
    return represented_split(links, read_split(files.encoder, sites), lambda some: represented(some, members, standing))


def _write_split(uri: str, split: Split) -> None:
    columns = [pa.array(split.questions), pa.array(split.sets), pa.array(split.parts.tolist(), pa.string())]
    storage.write_table(uri, pa.table(columns, schema=KNOWN_SETS), KNOWN_SETS)


def read_known_sets(files: CalibrationFiles) -> Split:
    """The sets of known duplicates of a run, by representatives."""
    table = storage.read_table(files.known, KNOWN_SETS)
    keys, sets = (table[name].to_numpy() for name in ("key", "duplicates"))
    return Split(keys, sets, np.array(table["part"].to_pylist(), str))


def write_links(uri: str, links: str | None, near: NearFiles, sites: list[str]) -> Counts:
    """Write the known duplicates of the archive as pairs of representatives; none without links. Runs as a task."""

    def make() -> Counts:
        pairs = representative_links(links, near.representatives, Sites(sites))
        pairs = pairs[np.isin(pairs, all_keys(near.texts)).all(axis=1)]
        _write_pairs_of_keys(uri, pairs)
        return {"rows_out": len(pairs)}

    return skip_or(uri, make)


def _write_pairs_of_keys(uri: str, pairs: np.ndarray) -> None:
    table = pa.table([pa.array(pairs[:, 0]), pa.array(pairs[:, 1])], schema=KEY_PAIRS)
    storage.write_table(uri, table, KEY_PAIRS)


def represented(keys: np.ndarray, members: np.ndarray, representatives: np.ndarray) -> np.ndarray:
    """For each key the question that represents it; `members` is sorted."""
    if not len(members):
        return keys
    places = np.minimum(np.searchsorted(members, keys), len(members) - 1)
    return np.where(members[places] == keys, representatives[places], keys)


def _second_wanted(files: CalibrationFiles, asked: Asked) -> Counts:
    wanted = files.search(2).wanted
    if not storage.exists(wanted):
        keys, lists = read_nearest(files.search(1).lists, asked.settings.k)
        others = lists.others[lists.others >= 0]
        write_keys(wanted, np.setdiff1d(others, keys))
    return {}


def _words_of_part(files: CalibrationFiles, asked: Asked, part: int) -> Counts:
    def make() -> Counts:
        lists = [read_nearest(files.search(number).lists, asked.settings.k)[0] for number in (1, 2)]
        table = read_terms(files.terms, part, np.unique(np.concatenate(lists)))
        storage.write_table(files.words(part), table, TERMS)
        return {}

    return skip_or(files.words(part), make)


def _fit(files: CalibrationFiles, asked: Asked, settings: CalibrationSettings) -> Counts:
    from dupq.stages.calibration_pairs import sampled_pairs

    sites, prior = Sites(asked.sites), read_prior()
    found = sampled_pairs(files, asked)
    tables = [storage.read_table(files.words(part), TERMS) for part in range(files.terms.parts)]
    keys, words = words_of(pa.concat_tables(tables))
    left, right = np.searchsorted(keys, found.left), np.searchsorted(keys, found.right)
    evidence = shared(words, left, right, read_rarities(files.terms))
    places = places_of(found.scores, found.reference)
    features = features_of(places, found.listing_left, found.listing_right, evidence, asked.settings.k)
    model = fit(Labelled(features, found.labels, found.weights, found.is_judged, found.log_rates), prior)
    probabilities = model.probabilities(features)
    floor = _floor(found.scores, probabilities, found.counts, asked)
    own = own_share(model, prior, features)
    record = {
        "model": model.to_dict(),
        "reference": _quantiles(found.reference).tolist(),
        "floor": floor if np.isfinite(floor) else None,
        "expected_threshold": threshold_for(settings.precision, probabilities, found.counts),
        "development_links": int(found.is_linked.sum()),
        "judged_pairs": int(found.is_judged.sum()),
        "development_sets": found.sets,
        "sampled_questions": found.questions,
        "own_share": own,
        "prior_sites": list(prior.sites),
        "fitness": storage.read_json(files.fitness),
    }
    _write_pairs(files, sites, found, features, probabilities)
    storage.write_json(files.output, record)
    return {"rows_out": len(features), "development pairs among neighbours": int(found.is_linked.sum())}


def _floor(scores: np.ndarray, probabilities: np.ndarray, counts: np.ndarray, asked: Asked) -> float:
    """The lowest score such that, as expected, half of the pairs from it on are duplicates; infinite if none is."""
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum((probabilities * counts)[order]) / np.maximum(np.cumsum(counts[order]), 1e-300)
    is_last = np.append(scores[order][1:] != scores[order][:-1], True)[: len(order)]
    reached = np.flatnonzero((right >= _FLOOR_PRECISION) & is_last)
    if not len(reached):
        return np.inf
    step = asked.measure.highest / _FLOOR_STEPS
    return float(np.ceil(scores[order][reached[-1]] / step) * step)


def _quantiles(reference: np.ndarray) -> np.ndarray:
    if len(reference) <= _REFERENCE:
        return reference
    return np.quantile(reference, np.linspace(0, 1, _REFERENCE), method="nearest")


def _write_pairs(files: CalibrationFiles, sites: Sites, found: Any, features: np.ndarray, p: np.ndarray) -> None:
    names, ids = zip(*(sites.unpack(side) for side in (found.left, found.right)), strict=True)
    columns = [
        pa.array(names[0], pa.string()),
        pa.array(ids[0]),
        pa.array(names[1], pa.string()),
        pa.array(ids[1]),
        pa.array(found.scores.astype(np.float32)),
        pa.array(found.is_linked),
        pa.array(found.counts),
        pa.array(found.weights),
        pa.array(found.log_rates),
        pa.array(p),
        pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1]),
    ]
    storage.write_table(files.pairs, pa.table(columns, schema=CALIBRATION_PAIRS), CALIBRATION_PAIRS)
