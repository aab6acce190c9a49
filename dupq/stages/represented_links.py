"""Known duplicates with each question replaced by its representative: a run searches and joins only those.

Memory: the links, which are far fewer than questions, and which questions are represented by which; in `write_links`
also the keys of all questions, 8 bytes each.
"""

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.components import represented
from dupq.encoders.description import read_split
from dupq.execution.units import Counts, skip_or
from dupq.links.parts import Represent, represented_split
from dupq.links.split import Split
from dupq.links.tables import known_duplicates
from dupq.runs.keys import all_keys
from dupq.runs.layout import NearFiles
from dupq.tables import KEY_PAIRS, KNOWN_SETS, REPRESENTATIVES
from dupq.text.keys import Sites, are_among


def known_sets(links: str | None, representatives: str, encoder: str, keys: np.ndarray, sites: Sites) -> Split:
    """The known duplicates among the questions `keys` (ascending) that are searched, and those that these represent."""
    pairs = np.zeros((0, 2), np.int64) if links is None else known_duplicates(links, sites)
    represent = _represented_by(representatives)
    pairs = pairs[are_among(keys, represent(pairs)).all(axis=1)]
    return represented_split(pairs, read_split(encoder, sites), represent)


def write_known_sets(uri: str, split: Split) -> None:
    """Write the sets that `read_known_sets` reads."""
    columns = [pa.array(split.questions), pa.array(split.sets), pa.array(split.parts.tolist(), pa.string())]
    storage.write_table(uri, pa.table(columns, schema=KNOWN_SETS), KNOWN_SETS)


def read_known_sets(uri: str) -> Split:
    """The sets of known duplicates of a run, by representatives."""
    table = storage.read_table(uri, KNOWN_SETS)
    keys, sets = (table[name].to_numpy() for name in ("key", "duplicates"))
    return Split(keys, sets, np.array(table["part"].to_pylist(), str))


def write_links(uri: str, links: str | None, near: NearFiles, sites: list[str]) -> Counts:
    """Write the known duplicates of the archive as pairs of representatives; none without links. Runs as a task."""

    def make() -> Counts:
        pairs = _representative_links(links, near.representatives, Sites(sites))
        pairs = pairs[are_among(all_keys(near.texts), pairs).all(axis=1)]
        table = pa.table([pa.array(pairs[:, 0]), pa.array(pairs[:, 1])], schema=KEY_PAIRS)
        storage.write_table(uri, table, KEY_PAIRS)
        return {"rows_out": len(pairs)}

    return skip_or(uri, make)


def _representative_links(links: str | None, representatives: str, sites: Sites) -> np.ndarray:
    """The known duplicates as pairs of representatives (int64, shape (m, 2), left < right), each once."""
    if links is None:
        return np.zeros((0, 2), np.int64)
    pairs = _represented_by(representatives)(known_duplicates(links, sites))
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def _represented_by(uri: str) -> Represent:
    """`represented` with the representatives of a run."""
    table = storage.read_table(uri, REPRESENTATIVES)
    members, representatives = table["key"].to_numpy(), table["representative"].to_numpy()
    return lambda keys: represented(keys, members, representatives)
