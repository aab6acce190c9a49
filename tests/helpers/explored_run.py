"""The fabricated run with all that the explorer shows: a sample to be judged, changes, vectors and bags of words."""

import numpy as np
import pyarrow as pa
from fabricated_run import (
    COPIES,
    CS,
    PAIR,
    QUESTIONS,
    TITLES,
    TRAVEL,
    TRIPLE,
    Key,
    build_run,
    cluster_id,
    write_encoder,
)
from scipy import sparse

from dupq import storage, tables
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.neighbours.embeddings import Embeddings
from dupq.runs.reader import link
from dupq.stages.embeddings import embeddings_table
from dupq.text.keys import Sites
from dupq.text.questions import Vocabulary

ASKED = [(TRIPLE[0], TRIPLE[1]), (TRIPLE[1], TRIPLE[2]), (PAIR[0], PAIR[1]), ((CS, 34), (TRAVEL, 8))]
WORK = [(TRIPLE[0], PAIR[0]), ((CS, 34), (TRAVEL, 8)), (PAIR[1], (TRAVEL, 8))]
WORDS = ["halt", "<b>bold</b>", "oven"]


def build_explored_run(folder: str) -> str:
    """As `build_run`, and more tables beside it; the URI of the run."""
    run = build_run(folder)
    metrics = storage.read_json(storage.join(run, "metrics.json"))
    sites = Sites(list(metrics["sites"]))
    _write_sample(run, sites)
    write_worklist(run, WORK)
    _write_changes(run)
    _write_encoder(run, storage.join(folder, "encoder"), sites)
    return run


def _key(sites: Sites, key: Key) -> int:
    return int(sites.pack(key[0], np.array([key[1]]), "here")[0])


def _write_sample(run: str, sites: Sites) -> None:
    size = len(ASKED)
    columns = {
        **{name: [_key(sites, pair[side]) for pair in ASKED] for side, name in enumerate(("left", "right"))},
        "stratum": np.arange(size) % 2,
        "joined": [True, True, True, False],
        "pairs": np.full(size, 5),
        "drawn": np.full(size, 2),
        "probability": np.full(size, 0.8),
        "hash": np.array([8, 7, 5, 3], np.uint64),  # falling, also when they are mixed
    }
    table = pa.table(columns, schema=tables.REVIEW).sort_by([("stratum", "ascending"), ("hash", "ascending")])
    storage.write_table(storage.join(run, "review.parquet"), table, tables.REVIEW)
    verdicts = [Verdict(*left, *right, "unsure" if place == 0 else "") for place, (left, right) in enumerate(ASKED)]
    storage.write_bytes(storage.join(run, "review.tsv"), format_verdicts(verdicts).encode())


def write_worklist(run: str, work: list[tuple[Key, Key]]) -> None:
    """Write a worklist of these pairs."""
    rows = [
        {
            "rank": place,
            **dict(zip(tables.WORKLIST.names[1:5], (*left, *right), strict=True)),
            **{f"title_{end}": TITLES.get(key) for end, key in (("left", left), ("right", right))},
            **{f"link_{end}": link(key) for end, key in (("left", left), ("right", right))},
            "probability": 0.5 / place,
            "expected_right": 0.5,
            "evidence": f"titles share '<b>{place}</b>'",
            "verdict": "",
        }
        for place, (left, right) in enumerate(work, 1)
    ]
    table = pa.Table.from_pylist(rows, tables.WORKLIST)
    storage.write_table(storage.join(run, "worklist", "part-00000.parquet"), table, tables.WORKLIST)


def _write_changes(run: str) -> None:
    kinds = [("new", PAIR), ("gone", None), ("merged", TRIPLE), ("merged", TRIPLE), ("split", TRIPLE)]
    kinds.append(("shrunk", COPIES))
    shared = {"previous_size": 2, "shared": 1}
    rows = [
        {"kind": kind, "cluster_id": cluster_id(keys) if keys else None, "size": len(keys or []), **shared}
        for kind, keys in kinds
    ]
    table = pa.Table.from_pylist(rows, tables.CHANGED_CLUSTERS)
    storage.write_table(storage.join(run, "changes", "part-00000.parquet"), table, tables.CHANGED_CLUSTERS)


def _write_encoder(run: str, encoder: str, sites: Sites) -> None:
    """No network: what the report reads of an encoder, and the same vectors and bags, but for one bag."""
    write_encoder(run, encoder, dense=0.75, lexical=0.5)
    storage.write_bytes(storage.join(encoder, "vocabulary.txt"), Vocabulary(WORDS).to_bytes())
    keys = np.sort(np.array([_key(sites, key) for key in QUESTIONS]))
    vectors = np.tile(np.array([[0.6, 0.8]], np.float16), (len(keys), 1))
    bags = np.tile(np.array([[0, 0, 0.6, 0.8, 0]], np.float32), (len(keys), 1))
    bags[keys == _key(sites, TRIPLE[0])] = [0, 0, 0, 0, 1]
    embedded = Embeddings(keys, vectors, sparse.csr_array(bags))
    table = embeddings_table(embedded, sites)
    storage.write_table(storage.join(run, "embeddings", "part-00000.parquet"), table, table.schema)
