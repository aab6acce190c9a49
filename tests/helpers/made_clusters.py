"""A run with many random clusters: pairs of all kinds, titles of few words, some changes."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from fabricated_run import CS, TRAVEL, Key, _pair, build_run, cluster_id, stats_of

from dupq import storage, tables
from dupq.clusters.identity import KINDS

WORDS = ["How", "tree", "AVL-Tree", "graph", "مسألة", "Ähren", "c++", "x", "Is"]


def build_many(folder: str, clusters: int = 300, seed: int = 5) -> str:
    """Write the fabricated run with other tables, and return its URI."""
    generator = np.random.default_rng(seed)
    run = build_run(folder)
    sizes = np.minimum(2 + generator.geometric(0.4, clusters), 30)
    sizes[0] = 60
    numbers = generator.permutation(int(sizes.sum())) + 1
    keys: list[Key] = [(CS if number % 3 else TRAVEL, int(number)) for number in numbers]
    groups = [sorted(group) for group in np.split(np.arange(len(keys)), np.cumsum(sizes)[:-1])]
    members = [sorted(keys[place] for place in group) for group in groups]
    _write(f"{run}/clusters", [row for own in members for row in _rows(own)], tables.CLUSTERS)
    edges = [_edges(own, generator) for own in members]
    _write(f"{run}/pairs", [row for own in edges for row in own], tables.PAIRS)
    _write(f"{run}/cluster_stats", [stats_of(*one) for one in zip(members, edges, strict=True)], tables.CLUSTER_STATS)
    changed = [_change(own, str(generator.choice(KINDS))) for own in members[::4]]
    _write(f"{run}/changes", changed, tables.CHANGED_CLUSTERS)
    for site in (CS, TRAVEL):
        questions = [_question(number, generator) for of, number in sorted(keys) if of == site]
        _write(f"{folder}/questions/site={site}", questions, tables.QUESTIONS)
    return run


def _write(folder: str, rows: list[dict], schema: pa.Schema) -> None:
    storage.delete_folder(folder)
    for part in (0, 1):
        table = pa.Table.from_pylist(rows[part::2], schema)
        storage.write_table(storage.join(folder, f"part-{part:05}.parquet"), table, schema)


def _rows(own: list[Key]) -> list[dict]:
    first = own[len(own) // 2]
    canonical = {"canonical_site": first[0], "canonical_id": first[1], "canonical_reason": "age"}
    shared = {"cluster_id": cluster_id(own), "cluster_size": len(own), "threshold": 0.5, **canonical}
    return [{"site": key[0], "question_id": key[1], "is_canonical": key == first, **shared} for key in own]


def _edges(own: list[Key], generator: np.random.Generator) -> list[dict]:
    """Return pairs that form a path through the questions, and some more."""
    ends = {*pairwise(own), *((own[0], other) for other in own[2:] if generator.random() < 0.3)}
    rows = []
    for left, right in sorted(ends):
        source = str(generator.choice(["exact", "near_duplicate", "encoder", "known_link"], p=[0.1, 0.2, 0.6, 0.1]))
        row = _pair(left, right, source, round(float(generator.random()), 3), bool(generator.random() < 0.1))
        rows.append({**row, "joined": True})
        if source == "encoder" and generator.random() < 0.3:
            rows[-1] |= {"title_overlap": 0.1, "text_overlap": 0.2}
    return rows


def _change(own: list[Key], kind: str) -> dict:
    return {"kind": kind, "cluster_id": cluster_id(own), "size": len(own), "previous_size": 1, "shared": 1}


def _question(number: int, generator: np.random.Generator) -> dict:
    title = " ".join(generator.choice(WORDS, 3))
    return {"question_id": number, "title": title, "body_html": f"<p>Body {number}</p>", "tags": ["a", "b"], "score": 1}
