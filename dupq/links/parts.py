"""Which known duplicates a run may calibrate on, and which it must keep to measure itself."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import xxhash

from dupq.clusters.components import components, represented
from dupq.links.split import Split
from dupq.tables import KNOWN_SETS

Represent = Callable[[np.ndarray], np.ndarray]  # from keys to those of the questions that represent them


def run_split(links: np.ndarray, seen: dict[str, np.ndarray]) -> Split:
    """The sets of known duplicates (int64 links, shape (m, 2)) in the parts of a run.

    `seen` holds the questions (int64 keys) that the encoder was trained, tuned and tested on, by part. A set with one
    of them is of that part, training first. Of all others, links of later nights or of another archive, a half by the
    hash of their smallest key is `development`, which calibration may read, and a half is `test`.
    """
    questions, sets = components(links)
    parts = np.where(_is_first_half(sets), "development", "test")
    for part in ("test", "development", "train"):
        parts = np.where(np.isin(sets, sets[np.isin(questions, seen[part])]), part, parts)
    return Split(questions, sets, parts)


def _is_first_half(sets: np.ndarray) -> np.ndarray:
    distinct, places = np.unique(sets, return_inverse=True)
    bits = [xxhash.xxh3_64_intdigest(int(key).to_bytes(8, "little")) & 1 for key in distinct]
    return np.array(bits, bool)[places] if len(distinct) else np.zeros(0, bool)


def represented_split(links: np.ndarray, seen: dict[str, np.ndarray], representative_of: Represent) -> Split:
    """`run_split` of the questions that represent others: what calibration reads.

    A set of representatives with a question of training is of that part, else one with a question of test, so that
    nothing that a run is measured on is calibrated on, even through a copy.
    """
    raw = run_split(links, seen)
    questions, parts = representative_of(raw.questions), raw.parts
    pairs = np.unique(np.sort(representative_of(links.ravel()).reshape(-1, 2), axis=1), axis=0)
    members, sets = components(pairs[pairs[:, 0] != pairs[:, 1]])
    found = np.full(len(members), "development")
    for part in ("test", "train"):
        own = np.isin(members, questions[parts == part])
        found = np.where(np.isin(sets, sets[own]), part, found)
    return Split(members, sets, found)


def represented_by(representatives: pa.Table) -> Represent:
    """Return `represented` with a run's representatives (rows of REPRESENTATIVES)."""
    members, kept = (representatives[name].to_numpy() for name in ("key", "representative"))
    return lambda keys: represented(keys, members, kept)


def sets_table(split: Split) -> pa.Table:
    """Return the sets of known duplicates as rows of KNOWN_SETS."""
    columns = [pa.array(split.questions), pa.array(split.sets), pa.array(split.parts.tolist(), pa.string())]
    return pa.table(columns, schema=KNOWN_SETS)


def sets_in(table: pa.Table) -> Split:
    """Return the sets of known duplicates in rows of KNOWN_SETS."""
    keys, sets = (table[name].to_numpy() for name in ("key", "duplicates"))
    return Split(keys, sets, np.array(table["part"].to_pylist(), str))
