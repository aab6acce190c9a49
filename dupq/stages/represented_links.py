"""Known duplicates with each question replaced by its representative: a run searches and joins only those.

Memory: the links, which are far fewer than questions, and which questions are represented by which.
"""

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.components import represented
from dupq.encoders.description import read_split
from dupq.links.parts import Represent, represented_split
from dupq.links.split import Split
from dupq.links.tables import known_duplicates
from dupq.tables import KNOWN_SETS, REPRESENTATIVES
from dupq.text.keys import Sites, are_among


def known_sets(links: str | None, representatives: str, encoder: str, keys: np.ndarray, sites: Sites) -> Split:
    """The known duplicates among the questions `keys` (ascending) that are searched, and those that these represent."""
    pairs = np.zeros((0, 2), np.int64) if links is None else known_duplicates(links, sites)
    represent = represented_by(storage.read_table(representatives, REPRESENTATIVES))
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


def represented_by(representatives: pa.Table) -> Represent:
    """Return `represented` with a run's representatives (rows of REPRESENTATIVES)."""
    members, kept = (representatives[name].to_numpy() for name in ("key", "representative"))
    return lambda keys: represented(keys, members, kept)
