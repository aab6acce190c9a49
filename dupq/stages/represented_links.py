"""Known duplicates with each question replaced by its representative: a run searches and joins only those.

Memory: the links, which are far fewer than questions, and which questions are represented by which; in
`write_constraints` also the keys of all questions, 8 bytes each.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.components import represented
from dupq.clusters.constraints import constraints
from dupq.encoders.description import read_split
from dupq.evaluation.verdict_files import Judged
from dupq.evaluation.verdicts import DIFFERENT, SAME
from dupq.execution.units import Counts, skip_or
from dupq.links.parts import Represent, represented_split
from dupq.links.split import Split
from dupq.links.tables import known_duplicates
from dupq.runs.keys import all_keys
from dupq.runs.layout import NearFiles, PartitionFiles
from dupq.tables import JOINED_PAIRS, KEY_PAIRS, KNOWN_SETS, REPRESENTATIVES
from dupq.text.keys import Sites, are_among


def known_sets(links: str | None, representatives: str, encoder: str, keys: np.ndarray, sites: Sites) -> Split:
    """The known duplicates among the questions `keys` (ascending) that are searched, and those that these represent."""
    pairs = np.zeros((0, 2), np.int64) if links is None else known_duplicates(links, sites)
    represent = represented_by(representatives)
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


def write_constraints(
    files: PartitionFiles, links: str | None, near: NearFiles, sites: list[str], judged: Judged
) -> Counts:
    """Write the pairs of representatives that join at any probability, and those that must not. Runs as a task.

    The former are the known duplicates, if there are `links`, and what people judged to be the same.
    """

    def make() -> Counts:
        keys = all_keys(near.texts)
        known = np.zeros((0, 2), np.int64) if links is None else known_duplicates(links, Sites(sites))
        same, known, apart = (
            pairs[are_among(keys, pairs).all(axis=1)] for pairs in (judged.pairs(SAME), known, judged.pairs(DIFFERENT))
        )
        found = constraints(same, known, apart, represented_by(near.representatives))
        sources = pc.if_else(pa.array(found.is_verdict), "verdict", "known_link")
        table = pa.table([*found.joined.T, sources], schema=JOINED_PAIRS)
        storage.write_table(files.links, table, JOINED_PAIRS, {"contradicting": found.contradicting})
        storage.write_table(files.apart, pa.table([*found.apart.T], schema=KEY_PAIRS), KEY_PAIRS)
        return {"rows_out": len(table), "verdicts that others contradict": found.contradicting}

    return skip_or(files.links, make)


def represented_by(uri: str) -> Represent:
    """`represented` with the representatives of a run."""
    table = storage.read_table(uri, REPRESENTATIVES)
    members, representatives = table["key"].to_numpy(), table["representative"].to_numpy()
    return lambda keys: represented(keys, members, representatives)
