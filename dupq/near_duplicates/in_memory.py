"""Near duplicates of texts in memory: in one process what the stages do shard by shard."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.near_duplicates.asking import Asking
from dupq.near_duplicates.band_choice import bands_of
from dupq.near_duplicates.bands import band_keys
from dupq.near_duplicates.boilerplate import boilerplate, most_titles, titled_shingles, without_boilerplate
from dupq.near_duplicates.exact import Hashed, copies
from dupq.near_duplicates.pairing import CHAIN, candidate_pairs
from dupq.near_duplicates.shingles import compared, shingle_sets
from dupq.near_duplicates.signatures import text_signatures
from dupq.near_duplicates.verification import jaccard
from dupq.settings.near_duplicates import NearDuplicateSettings
from dupq.text.keys import distinct


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
    """The exact copies (each with the first of them) and near duplicates among n questions, sorted."""
    rows = np.flatnonzero(pc.binary_length(said.texts).to_numpy() > 0)
    high, low = said.hashes[rows].view(np.uint64).T
    later, first = copies(Hashed(high, low, rows))
    exact = np.stack([rows[first], rows[later]], axis=1)
    rows = rows[~np.isin(rows, exact[:, 1])]
    signatures = text_signatures(compared(said.titles, said.texts).take(pa.array(rows)), settings)
    found, _ = candidate_pairs(band_keys(signatures, *bands_of(settings)), rows, CHAIN)
    coefficients = _coefficients(said, found, settings.shingle_size)
    alike = coefficients >= settings.threshold
    found, coefficients = found[alike], coefficients[alike]
    kept = asking.all_same(said.titles, said.signs, *found.T)
    pairs = np.concatenate([exact, found[kept]])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    is_exact = np.arange(len(pairs)) < len(exact)
    return NearPairs(pairs[order], is_exact[order], np.concatenate([np.ones(len(exact)), coefficients[kept]])[order])


def _coefficients(said: Said, pairs: np.ndarray, size: int) -> np.ndarray:
    """The Jaccard coefficient of each pair of rows, of shingles that are no boilerplate (float64)."""
    rows = distinct(pairs)
    titles, texts = (column.take(pa.array(rows)) for column in (said.titles, said.texts))
    sets = shingle_sets(compared(titles, texts), size)
    common = boilerplate(titled_shingles(sets, titles, texts), most_titles(len(rows)))
    return jaccard(without_boilerplate(sets, common), *np.searchsorted(rows, pairs).T)
