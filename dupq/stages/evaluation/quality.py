"""A run's clusters beside the known duplicates that nothing was fitted on, at any size of the archive.

    linked    one task                 the links of the test part, and the sets that they form
    pairs     a task a file of pairs   the encoder's pairs with a linked question
    said      a task a shard           the length of the title and the year of linked questions
    evaluate  one task                 what is measured (link_quality)

Links are far fewer than questions. Memory: the links, and in the first task 8 bytes a question, twice that while they
are read; a shard or a file of pairs; in the last task 24 bytes a pair with a linked question and about 50 a question in
clusters. Links are incomplete, so every precision here is a lower bound.
"""

from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.encoders.description import read_split
from dupq.evaluation import clusters as measures
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.links.parts import run_split
from dupq.links.split import Split
from dupq.links.tables import known_duplicates
from dupq.near_duplicates.pairing import distinct_pairs
from dupq.runs.keys import all_keys, pairs_in
from dupq.runs.layout import QualityFiles
from dupq.runs.records import TITLE_WORDS
from dupq.shards import Shard, read_shard
from dupq.stages.represented_links import read_known_sets, represented_by, write_known_sets
from dupq.tables import KEY_PAIRS, MEMBERS, PAIRS, QUESTIONS, REPRESENTATIVES
from dupq.text.keys import ID_BITS, Sites, are_among, distinct, pair_numbers, places_among

_EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_THRESHOLDS = np.arange(10, 100) / 100  # those of the report's slider, at which recall is measured too
_FOUND = pa.schema([*KEY_PAIRS, *(PAIRS.field(name) for name in ("probability", "rank"))])
_NEAREST = (1, 5, 10)  # of either question
_UNLISTED = np.iinfo(np.int32).max  # the rank of a pair that is in no list
_SAID = pa.schema([pa.field(name, pa.int64(), False) for name in ("key", "words", "year")])


class Decided(TypedDict):
    """What a run decided before it is compared with links."""

    thresholds: list[dict[str, float]]
    linked_share: float  # of the duplicates, the share that is linked


def read_linked(files: QualityFiles, sites: Sites) -> Report:
    """Read of the run's tables what has to do with linked questions."""
    report = run_tasks("links", _write_linked, [(files, sites.names)])
    if report.rows_out:
        names = [file.relative for file in storage.list_files(files.pairs, ".parquet")]
        report.add(run_tasks("links", _pairs_of_file, [(files, sites.names, name) for name in names]))
        report.add(run_tasks("links", _said_in_shard, [(files, sites.names, shard) for shard in files.shards]))
    return report


def _write_linked(files: QualityFiles, site_names: list[str]) -> Counts:
    def make() -> Counts:
        sites = Sites(site_names)
        links = known_duplicates(files.links, sites)
        links = links[are_among(all_keys(files.texts), links).all(axis=1)]  # dumps name questions that are deleted
        split = run_split(links, read_split(files.encoder, sites))
        tested = split.links_of("test", links)
        write_known_sets(files.sets, split)
        represent = represented_by(storage.read_table(files.representatives, REPRESENTATIVES))
        searched = distinct_pairs(np.sort(represent(tested), axis=1))
        searched = searched[searched[:, 0] != searched[:, 1]]
        table = pa.table([*map(pa.array, searched.T)], schema=KEY_PAIRS)
        storage.write_table(files.searched, table, KEY_PAIRS)
        table = pa.table([*map(pa.array, tested.T)], schema=KEY_PAIRS)
        storage.write_table(files.tested, table, KEY_PAIRS)  # last: it marks the rest
        return {"rows_out": len(tested)}

    return skip_or(files.tested, make)


def _pairs_of_file(files: QualityFiles, site_names: list[str], name: str) -> Counts:
    output = files.step("pairs", name)

    def make() -> Counts:
        sites, searched = Sites(site_names), pairs_in(storage.read_table(files.searched, KEY_PAIRS))
        linked = distinct(np.concatenate([read_known_sets(files.sets).questions_of("test"), searched.ravel()]))
        columns = ["site_left", "question_id_left", "site_right", "question_id_right", "source", "probability", "rank"]
        table = storage.read_table(storage.join(files.pairs, name), PAIRS, columns)
        table = table.filter(pc.equal(table["source"], "encoder"))
        ends = [
            sites.pack_columns(table[f"site_{side}"], table[f"question_id_{side}"], name) for side in ("left", "right")
        ]
        mine = np.logical_or(*(are_among(linked, side) for side in ends))
        kept = table.filter(pa.array(mine)).select(["probability", "rank"])
        found = pa.table([*(pa.array(side[mine]) for side in ends), *kept.columns], schema=_FOUND)
        storage.write_table(output, found, _FOUND)
        return {}

    return skip_or(output, make)


def _said_in_shard(files: QualityFiles, site_names: list[str], shard: Shard) -> Counts:
    output = files.step("said", shard.file)

    def make() -> Counts:
        wanted = distinct(pairs_in(storage.read_table(files.tested, KEY_PAIRS))[:, 0])
        table = read_shard(shard, QUESTIONS, ["question_id", "title", "creation_date"])
        keys = Sites(site_names).pack(shard.site, table["question_id"].to_numpy(), shard.uri)
        mine = pa.array(are_among(wanted, keys))
        table = table.filter(mine)
        words = pc.add(pc.count_substring(table["title"], " ").cast(pa.int64()), 1)
        years = pc.fill_null(pc.year(table["creation_date"]), 0)
        columns = [column.to_numpy() for column in (words, years)]
        storage.write_table(
            output, pa.table([pa.array(keys).filter(mine), *map(pa.array, columns)], schema=_SAID), _SAID
        )
        return {}

    return skip_or(output, make)


def link_quality(files: QualityFiles, sites: Sites, decided: Decided) -> dict[str, object] | None:
    """Recall, lower-bound precision and calibration on the links of the test part; None without any.

    Of what `read_linked` wrote.
    """
    tested = pairs_in(storage.read_table(files.tested, KEY_PAIRS))
    if not len(tested):
        return None
    split = read_known_sets(files.sets)
    linked = split.questions_of("test")
    members = storage.read_table(files.members, MEMBERS, ["key", "cluster"])
    keys, clusters = members["key"].to_numpy(), members["cluster"].to_numpy()
    tables = [storage.read_table(file.uri, _FOUND) for file in storage.list_files(files.step("pairs"), ".parquet")]
    pairs = pa.concat_tables([_FOUND.empty_table(), *tables])
    every, ranks = pairs_in(pairs), pc.fill_null(pairs["rank"], _UNLISTED).to_numpy()
    is_tested = are_among(linked, every).any(axis=1)  # not only of a question that represents a linked one
    ends, p = every[is_tested], pairs["probability"].to_numpy()[is_tested].astype(np.float64)
    together = measures.joined(tested, keys, clusters)
    is_known = _same_set(split, *ends.T)
    bins = measures.calibration(p, is_known, edges=_EDGES)
    found = _found_as(tested, linked, ends, p)
    searched = pairs_in(storage.read_table(files.searched, KEY_PAIRS))
    rank = _found_as(searched, distinct(searched), every, ranks)
    return {
        "test_links": len(tested),
        "in_pairs": float((found >= 0).mean()),
        "searched_links": len(searched),
        "among_nearest": {str(n): float(((rank > 0) & (rank <= n)).mean()) for n in _NEAREST if len(searched)},
        "in_one_cluster": float(together.mean()),
        "lower_bound_precision": _lower_bound(split, linked, keys, clusters),
        "b_cubed": measures.b_cubed(linked, split.set_of(linked), keys, clusters)._asdict(),
        "pairwise": measures.pairwise(linked, split.set_of(linked), keys, clusters)._asdict(),
        "thresholds": [_at_threshold(row, found, p, is_known) for row in decided["thresholds"]],
        "by_threshold": [_at_threshold({"threshold": float(at)}, found, p, is_known) for at in _THRESHOLDS],
        "calibration": {
            **{name: column.tolist() for name, column in bins._asdict().items()},
            "share_of_duplicates_linked": decided["linked_share"],
            "error_on_links": measures.calibration_error(bins),
        },
        **_by_kind(files, sites, tested, together),
    }


def _found_as(tested: np.ndarray, linked: np.ndarray, pairs: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The value (float64) of each of the links `tested` among `pairs`; -1 of one that is not among them."""
    inside = are_among(linked, pairs).all(axis=1)
    numbers = pair_numbers(linked, pairs[inside])
    order = np.argsort(numbers, kind="stable")
    places, are_there = places_among(numbers[order], pair_numbers(linked, tested))
    found = np.full(len(tested), -1.0)
    found[are_there] = values[inside][order][places[are_there]]
    return found


def _same_set(split: Split, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    sets = split.set_of(left)
    return (sets >= 0) & (sets == split.set_of(right))


def _lower_bound(split: Split, linked: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> float | None:
    """Of the partners in clusters of the questions `linked`, the share that is a known duplicate; None without any.

    Counted, not listed: a large cluster has as many partners for each of its linked questions. `linked` are whole sets
    of known duplicates, so that a known partner is one of them.
    """
    queries = linked[are_among(keys, linked)]
    own, by_cluster = clusters[np.searchsorted(keys, queries)], np.sort(clusters)
    sizes = np.searchsorted(by_cluster, own, "right") - np.searchsorted(by_cluster, own)
    partners = int((sizes - 1).sum())
    both = np.unique(np.stack([own, split.set_of(queries)]), axis=1, return_counts=True)[1]
    return int((both * (both - 1)).sum()) / partners if partners else None


def _at_threshold(
    row: dict[str, float], found: np.ndarray, p: np.ndarray, known: np.ndarray
) -> dict[str, float | None]:
    """What pairs of that probability would find and be worth, before any partition; `found` is that of each link."""
    above, threshold = p >= np.float32(row["threshold"]), np.float32(row["threshold"])
    return {
        **row,
        "links_found": float(((found >= 0) & (found >= threshold)).mean()),
        "lower_bound_precision": float(known[above].mean()) if above.any() else None,
    }


def _by_kind(
    files: QualityFiles, sites: Sites, links: np.ndarray, together: np.ndarray
) -> dict[str, dict[str, dict[str, float]]]:
    """The recall of links by their left question's site, length of title and year."""
    said = pa.concat_tables([storage.read_table(files.step("said", shard.file), _SAID) for shard in files.shards])
    keys, words, years = (column.to_numpy() for column in said.sort_by("key").columns)
    rows = np.searchsorted(keys, links[:, 0])
    begins = np.array(TITLE_WORDS)
    groups = {
        "by_site": np.array(sites.names)[links[:, 0] >> ID_BITS],
        "by_title_words": begins[np.searchsorted(begins, words[rows], "right") - 1],
        "by_year": years[rows],
    }
    shown = {}
    for name, labels in groups.items():
        names, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
        hits = np.bincount(places, together)
        shown[name] = {
            str(label): {"links": int(count), "in_one_cluster": float(hit / count)}
            for label, count, hit in zip(names.tolist(), counts, hits, strict=True)
        }
    return shown


def partners_changed(now: tuple[np.ndarray, np.ndarray], then: tuple[np.ndarray, np.ndarray]) -> float:
    """The share of questions of clusters, of either run, that are not in the cluster of the same id in both.

    Each run is its sorted keys and the ids of their clusters; 0 if neither has any.
    """
    every = distinct(np.concatenate([now[0], then[0]]))
    ids = []
    for keys, names in (now, then):
        column = np.full(len(every), -1)
        column[np.searchsorted(every, keys)] = names
        ids.append(column)
    return float((ids[0] != ids[1]).mean()) if len(every) else 0.0
