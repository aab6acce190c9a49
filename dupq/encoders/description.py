"""The description of a saved encoder (encoder.json). Separate from the networks, so that reading it needs no torch."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.errors import DupqError
from dupq.neighbours.measure import Measure
from dupq.text.keys import Sites

FORMAT = 3
PARTS = ("train", "development", "test")
FITNESS_QUESTIONS = 1_000  # of an archive: the more there are, the harder a body is to find, so the same everywhere

SPLIT = pa.schema(
    [
        pa.field("site", pa.string(), nullable=False),
        pa.field("question_id", pa.int64(), nullable=False),
        pa.field("duplicates", pa.int64(), nullable=False),  # the number of its set of known duplicates
        pa.field("part", pa.string(), nullable=False),  # train, development or test
    ]
)


def read_description(uri: str) -> dict[str, Any]:
    """encoder.json; raises DupqError if there is no encoder at `uri` or of another format."""
    place = storage.join(uri, "encoder.json")
    if not storage.exists(place):
        raise DupqError(f"{uri}: no encoder here (encoder.json is missing); train one with jobs/train.py")
    description = storage.read_json(place)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise DupqError(f"{place}: not an encoder of format {FORMAT}; train it anew with this version of dupq")
    return description


def read_measure(uri: str) -> Measure:
    """How the encoder at `uri` scores two embeddings."""
    return Measure.from_dict(read_description(uri).get("measure"), storage.join(uri, "encoder.json"))


def saved_by(uri: str) -> str | None:
    """The name of the run that made the encoder at `uri`; None if there is none."""
    place = storage.join(uri, "encoder.json")
    return storage.read_json(place).get("run_id") if storage.exists(place) else None


def read_split(uri: str, sites: Sites) -> dict[str, np.ndarray]:
    """The keys (int64) of the questions that an encoder was trained, tuned and tested on, by part.

    Questions of sites that `sites` lacks are left out: they are not in this archive.
    """
    table = storage.read_table(storage.join(uri, "split.parquet"), SPLIT)
    table = table.filter(pc.is_in(table["site"], pa.array(sites.names)))
    keys = sites.pack_columns(table["site"], table["question_id"], uri)
    parts = table["part"].to_numpy(zero_copy_only=False)
    return {part: keys[parts == part] for part in PARTS}


def read_development_links(uri: str, sites: Sites) -> np.ndarray:
    """Pairs of known duplicates (int64, shape (m, 2), left < right) that an encoder was tuned on.

    Each question of a set is paired with the next one: enough to connect the set, not all of its links.
    """
    table = storage.read_table(storage.join(uri, "split.parquet"), SPLIT)
    is_wanted = pc.and_(pc.is_in(table["site"], pa.array(sites.names)), pc.equal(table["part"], "development"))
    table = table.filter(is_wanted)
    keys, sets = sites.pack_columns(table["site"], table["question_id"], uri), table["duplicates"].to_numpy()
    order = np.lexsort((keys, sets))
    keys, sets = keys[order], sets[order]
    return np.stack([keys[:-1], keys[1:]], axis=1)[sets[:-1] == sets[1:]]
