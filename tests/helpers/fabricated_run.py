"""A small finished run, written by hand: three sites, hostile titles, clusters of every kind.

The large cluster is joined by near duplicates, the pair and the triple by the encoder, and the copies lie on
a site whose name is no host name. A known link is among the triple's pairs. The more probable a pair of the encoder,
the lower its similarity, and all of these are above 1, so that neither passes for the other.
"""

from itertools import pairwise
from typing import Any

import pyarrow as pa

from dupq import storage, tables
from dupq.encoders.saved import FORMAT
from dupq.settings import config

CS, TRAVEL, BAD_SITE = "cs.stackexchange.com", "travel.stackexchange.com", 'bad"><script>.com'
THRESHOLD = 0.8
LARGE = [(CS, number) for number in range(1, 26)]
TRIPLE = [(CS, 31), (CS, 32), (TRAVEL, 5)]
PAIR = [(CS, 33), (TRAVEL, 7)]
COPIES = [(BAD_SITE, 1), (BAD_SITE, 2)]
CLUSTERS = [LARGE, TRIPLE, PAIR, COPIES]
LONG_TITLE = "endless " * 1_250
TITLES = {
    (CS, 1): "<script>alert('canonical')</script>",
    (CS, 2): "<img src=x onerror=\"alert('quoted')\">",
    (CS, 3): "",
    (CS, 4): LONG_TITLE,
    (CS, 31): "What's \"P\" & what's 'NP'? 🤔",
    (CS, 32): "ما هي مسألة التوقف؟ \u202e",
    (TRAVEL, 5): "{{ 7 * 7 }} </title></svg><a href='javascript:alert(1)'>x</a>",
    (TRAVEL, 7): "]]><!-- --><style>*{display:none}</style>",
    (BAD_SITE, 1): "A copy",
}
QUESTIONS = [
    *((CS, number) for number in range(1, 41)),
    *((TRAVEL, number) for number in range(1, 11)),
    *((BAD_SITE, number) for number in range(1, 4)),
]

Key = tuple[str, int]


def build_run(folder: str) -> str:
    """Write the archive and the run below `folder`; the URI of the run, beside which is its latest.json."""
    questions, run = storage.join(folder, "questions"), storage.join(folder, "runs", "fabricated")
    for site in (CS, TRAVEL, BAD_SITE):
        rows = [_question(key) for key in QUESTIONS if key[0] == site]
        _write_in_two(questions, f"site={site}", rows, tables.QUESTIONS)
    _write_in_two(run, "pairs", _pairs(), tables.PAIRS)
    _write_in_two(run, "clusters", _clusters(), tables.CLUSTERS)
    _write_in_two(run, "cluster_stats", _cluster_stats(), tables.CLUSTER_STATS)
    _write_in_two(run, "worklist", [], tables.WORKLIST)
    storage.write_json(storage.join(run, "config.json"), _config())
    storage.write_json(storage.join(run, "manifest.json"), _manifest(questions))
    storage.write_json(storage.join(run, "metrics.json"), metrics())
    storage.write_json(storage.join(run, "_SUCCESS"), {"outputs": {}, "finished": "2026-11-21T22:00:00+00:00"})
    storage.write_json(storage.join(folder, "runs", "latest.json"), {"run_id": "fabricated", "run": run})
    return run


def write_encoder(run: str, encoder: str, dense: float, lexical: float) -> None:
    """Write what a run's report reads of an encoder, without a network, and name it in the run's manifest."""
    description = {
        "format": FORMAT,
        "settings": _config(),
        "measure": {"kind": "cosine", "dense": dense, "lexical": lexical},
        "pair_threshold": None,
        "fitness": {"questions": 1, "unknown_words": 0.0, "bodies_found": None},
        "fingerprint": "0",
        "metrics": {},
    }
    storage.write_json(storage.join(encoder, "encoder.json"), description)
    manifest = storage.read_json(storage.join(run, "manifest.json"))
    manifest["inputs"]["encoder"] = encoder
    storage.write_json(storage.join(run, "manifest.json"), manifest)


def _write_in_two(folder: str, name: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    for part, start in enumerate((0, 1)):
        table = pa.Table.from_pylist(rows[start::2], schema)
        storage.write_table(storage.join(folder, name, f"part-{part:05}.parquet"), table, schema)


def _config() -> dict[str, Any]:
    return config.to_dict(config.load())


def _question(key: Key) -> dict[str, Any]:
    site, number = key
    title = TITLES.get(key, f"Question {number} about {site.split('.')[0]}")
    return {"question_id": number, "title": title, "body_html": "", "tags": [], "score": number - 3}


def _pair(left: Key, right: Key, source: str, value: float, known_link: bool = False) -> dict[str, Any]:
    is_encoders = source == "encoder"
    return {
        "site_left": left[0],
        "question_id_left": left[1],
        "site_right": right[0],
        "question_id_right": right[1],
        "source": source,
        "jaccard": value if source in ("exact", "near_duplicate") else None,
        "similarity": 2 - value if is_encoders else None,
        "probability": value,
        "rank": 1 if is_encoders else None,
        "rank_left": 1 if is_encoders else None,
        "title_overlap": 0.5 if is_encoders else None,
        "text_overlap": 0.25 if is_encoders else None,
        "joined": any(left in cluster and right in cluster for cluster in CLUSTERS),
        "known_link": known_link,
    }


def _pairs() -> list[dict[str, Any]]:
    return [
        *(_pair(left, right, "near_duplicate", 0.85) for left, right in pairwise(LARGE)),
        _pair(TRIPLE[0], TRIPLE[1], "encoder", 0.96),
        _pair(TRIPLE[1], TRIPLE[2], "encoder", 0.88, known_link=True),
        _pair(TRIPLE[0], TRIPLE[2], "known_link", 1.0, known_link=True),
        _pair(PAIR[0], PAIR[1], "encoder", 0.91),
        _pair(COPIES[0], COPIES[1], "exact", 1.0),
        _pair((CS, 34), (TRAVEL, 8), "encoder", 0.79),
        _pair((CS, 35), (TRAVEL, 9), "encoder", 0.41),
    ]


def _clusters() -> list[dict[str, Any]]:
    cluster_of = {key: cluster for cluster in CLUSTERS for key in cluster}
    rows = []
    for key in QUESTIONS:
        cluster = cluster_of.get(key, [key])
        canonical = cluster[-1]
        names = {"site": key[0], "question_id": key[1], "cluster_id": cluster_id(cluster)}
        names |= {"canonical_site": canonical[0], "canonical_id": canonical[1], "is_canonical": key == canonical}
        reason = "score" if len(cluster) > 1 else None
        rows.append({**names, "canonical_reason": reason, "cluster_size": len(cluster), "threshold": THRESHOLD})
    return rows


def cluster_id(cluster: list[Key]) -> str:
    site, number = cluster[0]
    return f"{site}/{number}"


def _cluster_stats() -> list[dict[str, Any]]:
    return [
        stats_of(cluster, [pair for pair in _pairs() if (pair["site_left"], pair["question_id_left"]) in cluster])
        for cluster in CLUSTERS
    ]


def stats_of(cluster: list[Key], edges: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a cluster's row of `cluster_stats`."""
    values = [row["probability"] for row in edges]
    return {
        "cluster_id": cluster_id(cluster),
        "size": len(cluster),
        "edges": len(edges),
        "density": 2 * len(edges) / (len(cluster) * (len(cluster) - 1)),
        "weakest_link": min(values),
        "bridges": len(edges) if len(edges) < len(cluster) else 0,
        "mean_probability": sum(values) / len(values),
    }


def _manifest(questions: str) -> dict[str, Any]:
    stages = ["texts", "signatures", "near_duplicates", "encode", "terms", "calibrate", "neighbours", "pairs"]
    stages += ["partition", "clusters", "evaluate"]
    return {
        "run_id": "fabricated",
        "dupq": "0.2.0",
        "versions": {"python": "3.11.7", "ray": "2.60.0"},
        "inputs": {"questions": questions, "links": "/archive/links", "encoder": "/archive/encoder", "truth": None},
        "stages": [
            {
                "name": name,
                "seconds": 1.5 * position,
                "peak_memory_mb": 400 * position,
                "tasks": 2,
                "rows_in": len(QUESTIONS),
                "rows_out": len(QUESTIONS),
                "caps": {"texts over a limit": 3, "exempt": 0} if name == "near_duplicates" else {},
            }
            for position, name in enumerate(stages, 1)
        ],
    }


def metrics() -> dict[str, Any]:
    """The metrics.json of the run."""
    return {
        "questions": len(QUESTIONS),
        "sites": {CS: 40, TRAVEL: 10, BAD_SITE: 3},
        "exact_copies": 1,
        "near_duplicate_pairs": 24,
        "representatives": 28,
        "encoder_pairs": 5,
        "encoder_pairs_above_threshold": 3,
        "encoder_pairs_joined": 3,
        "expected_right": 2.7,
        "threshold": THRESHOLD,
        "expected_precision": 0.9,
        "thresholds": [{"precision": 0.8, "threshold": THRESHOLD, "pairs": 3.0, "expected_precision": 0.9}],
        "calibration": {
            "development_links": 40,
            "development_sets": 25,
            "sampled_questions": 53,
            "own_share": 0.4,
            "prior_sites": ["a.example.com", "b.example.com"],
        },
        "clusters": len(CLUSTERS),
        "questions_in_clusters": sum(map(len, CLUSTERS)),
        "largest_cluster": len(LARGE),
        "planted": {
            "copy": {"pairs": 10, "same_cluster": 1.0},
            "near_copy": {"pairs": 20, "same_cluster": 0.95},
            "rephrasing": {"pairs": 30, "same_cluster": 0.5},
        },
        "links": None,
        "drift": None,
        "verdicts": None,
        "judged": None,
        "judge": None,
        "checked": None,
        "worklist": {"pairs": 0, "first": 0, "expected_right": 0.0, "factor": 1.0},
        "not_measured": {},
    }
