"""A run's clusters beside the known duplicates that nothing was fitted on, at any size of the archive.

One task. Links are far fewer than questions: it holds them, the questions of clusters, and of the pairs those with a
linked question. Links are incomplete, so every precision here is a lower bound.
"""

from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.encoders.description import read_split
from dupq.evaluation import clusters as measures
from dupq.links.parts import run_split
from dupq.links.split import Split
from dupq.links.tables import known_duplicates
from dupq.runs.keys import all_keys
from dupq.runs.layout import QualityFiles
from dupq.runs.records import TITLE_WORDS
from dupq.shards import Shard, read_shard
from dupq.tables import MEMBERS, PAIRS, QUESTIONS
from dupq.text.keys import ID_BITS, Sites, pair_codes

_EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Decided(TypedDict):
    """What a run decided before it is compared with links."""

    thresholds: list[dict[str, float]]
    linked_share: float  # of the duplicates, the share that is linked


def link_quality(files: QualityFiles, sites: Sites, decided: Decided) -> dict[str, object] | None:
    """Recall, lower-bound precision and calibration on the links of the test part; None without any."""
    links = known_duplicates(files.links, sites)
    links = links[np.isin(links, all_keys(files.texts)).all(axis=1)]  # dumps name questions that are deleted
    split = run_split(links, read_split(files.encoder, sites))
    tested = split.links_of("test", links)
    linked = split.questions_of("test")
    if not len(tested):
        return None
    members = storage.read_table(files.members, MEMBERS)
    keys, clusters = members["key"].to_numpy(), members["cluster"].to_numpy()
    pairs = _pairs_of(files.pairs, linked, sites)
    together = measures.joined(tested, keys, clusters)
    is_known = _same_set(split, pairs["left"], pairs["right"])
    bins = measures.calibration(pairs["probability"], is_known, edges=_EDGES)
    return {
        "test_links": len(tested),
        "in_pairs": float(np.isin(pair_codes(*tested.T), pair_codes(pairs["left"], pairs["right"])).mean()),
        "in_one_cluster": float(together.mean()),
        "lower_bound_precision": _lower_bound(split, linked, keys, clusters),
        "b_cubed": measures.b_cubed(linked, split.set_of(linked), keys, clusters)._asdict(),
        "pairwise": measures.pairwise(linked, split.set_of(linked), keys, clusters)._asdict(),
        "thresholds": [_at_threshold(row, tested, pairs, is_known) for row in decided["thresholds"]],
        "calibration": {
            **{name: column.tolist() for name, column in bins._asdict().items()},
            "share_of_duplicates_linked": decided["linked_share"],
            "error_on_links": measures.calibration_error(bins),
        },
        **_by_kind(files.shards, sites, tested, together),
    }


def _pairs_of(folder: str, questions: np.ndarray, sites: Sites) -> dict[str, np.ndarray]:
    """The encoder's pairs with one of `questions`, read file by file."""
    found: dict[str, list[np.ndarray]] = {"left": [], "right": [], "probability": []}
    names = ["site_left", "question_id_left", "site_right", "question_id_right", "source", "probability"]
    for file in storage.list_files(folder, ".parquet"):
        table = storage.read_table(file.uri, PAIRS, names)
        table = table.filter(pc.equal(table["source"], "encoder"))
        left, right = (
            sites.pack_columns(table[f"site_{side}"], table[f"question_id_{side}"], file.uri)
            for side in ("left", "right")
        )
        mine = np.isin(left, questions) | np.isin(right, questions)
        for name, column in (("left", left), ("right", right), ("probability", table["probability"].to_numpy())):
            found[name].append(column[mine])
    return {name: np.concatenate([np.zeros(0, np.int64), *columns]) for name, columns in found.items()}


def _same_set(split: Split, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    sets = split.set_of(left)
    return (sets >= 0) & (sets == split.set_of(right))


def _lower_bound(split: Split, linked: np.ndarray, keys: np.ndarray, clusters: np.ndarray) -> float | None:
    """Of the partners in clusters of the questions `linked`, the share that is a known duplicate; None without any."""
    queries = linked[np.isin(linked, keys)]
    own = clusters[np.searchsorted(keys, queries)]
    inside = np.flatnonzero(np.isin(clusters, own))
    order = inside[np.argsort(clusters[inside], kind="stable")]
    starts = np.searchsorted(clusters[order], own)
    sizes = np.searchsorted(clusters[order], own, "right") - starts
    places = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
    one, other = np.repeat(queries, sizes), keys[order][places]
    different = one != other
    known = _same_set(split, one[different], other[different])
    return float(known.mean()) if len(known) else None


def _at_threshold(
    row: dict[str, float], links: np.ndarray, pairs: dict[str, np.ndarray], known: np.ndarray
) -> dict[str, float | None]:
    """What pairs of that probability would find and be worth, before any partition."""
    above = pairs["probability"] >= np.float32(row["threshold"])
    found = np.isin(pair_codes(*links.T), pair_codes(pairs["left"][above], pairs["right"][above]))
    return {
        **row,
        "links_found": float(found.mean()),
        "lower_bound_precision": float(known[above].mean()) if above.any() else None,
    }


def _by_kind(
    shards: tuple[Shard, ...], sites: Sites, links: np.ndarray, together: np.ndarray
) -> dict[str, dict[str, dict[str, float]]]:
    """The recall of links by their left question's site, length of title and year."""
    keys = np.unique(links[:, 0])
    words, years = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    for shard in shards:
        table = read_shard(shard, QUESTIONS, ["question_id", "title", "creation_date"])
        mine = sites.pack(shard.site, table["question_id"].to_numpy(), shard.uri)
        rows = np.flatnonzero(np.isin(mine, keys))
        places, found = np.searchsorted(keys, mine[rows]), table.take(pa.array(rows))
        words[places] = pc.count_substring(found["title"], " ").to_numpy() + 1
        years[places] = pc.fill_null(pc.year(found["creation_date"]), 0).to_numpy()
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
    every = np.union1d(now[0], then[0])
    ids = []
    for keys, names in (now, then):
        column = np.full(len(every), -1)
        column[np.searchsorted(every, keys)] = names
        ids.append(column)
    return float((ids[0] != ids[1]).mean()) if len(every) else 0.0
