"""Reading the links table as pairs of keys."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.shards import link_files
from dupq.tables import KEY_PAIRS, LINKS
from dupq.text.keys import Sites


def known_duplicates(links: str, sites: Sites) -> np.ndarray:
    """The links of type duplicate between two questions of one site (int64, shape (m, 2), left < right).

    Sorted, each pair once; a question linked to itself, and a site that the run lacks, are left out. Links are
    far fewer than questions, so that any task may hold them all.
    """
    found = [np.zeros((0, 2), np.int64)]
    for uri, site in link_files(links):
        if site not in sites.names:
            continue
        table = storage.read_table(uri, LINKS, ["question_id", "related_id", "link_type"])
        table = table.filter(pc.equal(table["link_type"], "duplicate"))
        ends = [sites.pack(site, table[column].to_numpy(), uri) for column in ("question_id", "related_id")]
        found.append(np.sort(np.stack(ends, axis=1), axis=1))
    pairs = np.unique(np.concatenate(found), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def links_table(links: str | None, site_names: list[str], _: int = 0) -> pa.Table:
    """Return `known_duplicates` (KEY_PAIRS), none without `links`. Memory: some 60 bytes each."""
    found = np.zeros((0, 2), np.int64) if links is None else known_duplicates(links, Sites(site_names))
    return pa.table([*found.T], schema=KEY_PAIRS)


def link_targets(links: str, sites: Sites) -> np.ndarray:
    """The question (int64 key) that each duplicate link names as the original, a row a link."""
    found = [np.zeros(0, np.int64)]
    for uri, site in link_files(links):
        if site in sites.names:
            table = storage.read_table(uri, LINKS, ["related_id", "link_type"])
            table = table.filter(pc.equal(table["link_type"], "duplicate"))
            found.append(sites.pack(site, table["related_id"].to_numpy(), uri))
    return np.concatenate(found)
