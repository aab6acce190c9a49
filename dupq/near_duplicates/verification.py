"""Verification of candidate pairs: their Jaccard coefficients, and whether their titles ask the same; and all of it,
from texts to verified pairs, for texts in memory. steps.py does the same partition by partition.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.near_duplicates.asking import Asking
from dupq.near_duplicates.minhash import band_keys, bands_of, text_signatures
from dupq.near_duplicates.pairing import (
    CHAIN,
    Hashed,
    boilerplate,
    candidate_pairs,
    copies,
    most_titles,
    titled_shingles,
    without_boilerplate,
)
from dupq.near_duplicates.shingles import Shingles, compared, jaccard, shingle_sets
from dupq.settings.sections import NearDuplicateSettings
from dupq.tables import SHINGLE_SETS
from dupq.text.keys import are_among, distinct

_PAIRS_AT_ONCE = 100_000  # with the shingle sets of their texts in memory


class Said(NamedTuple):
    """What n questions say."""

    titles: pa.StringArray  # tokens joined by single spaces
    texts: pa.StringArray  # title and body, likewise
    signs: pa.StringArray  # of the titles: `asking.signs_of`
    hashes: np.ndarray  # int64, (n, 2): `content_hashes`


class NearPairs(NamedTuple):
    """Verified pairs."""

    pairs: np.ndarray  # int64 rows, (m, 2), left < right
    is_exact: np.ndarray  # bool
    jaccards: np.ndarray  # float64


def near_pairs(said: Said, settings: NearDuplicateSettings, asking: Asking) -> NearPairs:
    """Return the exact copies (each with the first of them) and near duplicates among n questions, sorted."""
    rows = np.flatnonzero(pc.binary_length(said.texts).to_numpy() > 0)
    high, low = said.hashes[rows].view(np.uint64).T
    later, first = copies(Hashed(high, low, rows))
    exact = np.stack([rows[first], rows[later]], axis=1)
    rows = rows[~np.isin(rows, exact[:, 1])]
    signatures = text_signatures(compared(said.titles, said.texts).take(pa.array(rows)), settings)
    found, _ = candidate_pairs(band_keys(signatures, *bands_of(settings)), rows, CHAIN)
    rows = distinct(found)
    columns = (column.take(pa.array(rows)) for column in said[:3])
    sets, titled = shingle_table(settings.shingle_size, rows, *columns)
    common = boilerplate(titled, most_titles(len(rows)))
    coefficients, asks_same = compare(found, sets.to_batches(), common, asking, settings.threshold)
    kept = asks_same & (coefficients >= settings.threshold)
    pairs = np.concatenate([exact, found[kept]])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    is_exact = np.arange(len(pairs)) < len(exact)
    return NearPairs(pairs[order], is_exact[order], np.concatenate([np.ones(len(exact)), coefficients[kept]])[order])


def shingle_table(
    size: int, keys: np.ndarray, titles: pa.StringArray, texts: pa.StringArray, signs: pa.StringArray
) -> tuple[pa.Table, np.ndarray]:
    """Return SHINGLE_SETS of texts, and their shingles with the title over each, as of `titled_shingles`."""
    sets = shingle_sets(compared(titles, texts), size)
    lists = pa.LargeListArray.from_arrays(sets.offsets, sets.hashes)
    return pa.table([keys, lists, titles, signs], schema=SHINGLE_SETS), titled_shingles(sets, titles, texts)


def compare(
    pairs: np.ndarray, sets: Iterable[pa.RecordBatch], common: np.ndarray, asking: Asking, threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the Jaccard coefficient of each pair (sorted), and whether both ask the same if it reaches the threshold.

    Some pairs at a time: `sets` are gone through for them, and only those of their questions are held.
    """
    coefficients, asks_same = np.zeros(len(pairs)), np.zeros(len(pairs), bool)
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        rows = slice(start, start + _PAIRS_AT_ONCE)
        batch = _sets_among(sets, distinct(pairs[rows]))
        left, right = np.searchsorted(batch["key"].to_numpy(), pairs[rows]).T
        lists, titles, signs = (batch[name].combine_chunks() for name in ("shingles", "title", "signs"))
        shingles = Shingles(lists.values.to_numpy(), lists.offsets.to_numpy())
        coefficients[rows] = jaccard(without_boilerplate(shingles, common), left, right)
        alike = np.flatnonzero(coefficients[rows] >= threshold)
        asks_same[alike + start] = asking.all_same(titles, signs, left[alike], right[alike])
    return coefficients, asks_same


def _sets_among(sets: Iterable[pa.RecordBatch], keys: np.ndarray) -> pa.Table:
    """Return the rows of SHINGLE_SETS of `keys` (sorted), by their keys."""
    tables = [SHINGLE_SETS.empty_table()]
    for batch in sets:
        inside = are_among(keys, batch["key"].to_numpy())
        some = batch if inside.all() else batch.filter(pa.array(inside))
        tables.append(pa.Table.from_batches([some.replace_schema_metadata(None)]))
    table = pa.concat_tables(tables)
    return table.take(pa.array(np.argsort(table["key"].to_numpy()))).combine_chunks()
