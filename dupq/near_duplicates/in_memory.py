"""Near duplicates of texts in memory: in one process what the stages do shard by shard."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.near_duplicates.band_choice import with_bands
from dupq.near_duplicates.bands import band_keys
from dupq.near_duplicates.exact import Hashed, copies
from dupq.near_duplicates.pairing import ChainRule, candidate_pairs
from dupq.near_duplicates.shingles import hash_each, shingle_sets
from dupq.near_duplicates.signatures import text_signatures
from dupq.near_duplicates.verification import have_other_words, jaccard
from dupq.settings.near_duplicates import NearDuplicateSettings
from dupq.text.terms import numbers_of, words_of_short


class NearPairs(NamedTuple):
    """Verified pairs."""

    pairs: np.ndarray  # int64 rows, (m, 2), left < right
    is_exact: np.ndarray  # bool
    jaccards: np.ndarray  # float64


def near_pairs(
    titles: pa.StringArray, texts: pa.StringArray, settings: NearDuplicateSettings, language: str
) -> NearPairs:
    """The exact copies (each with the first of them) and near duplicates among n texts, sorted."""
    settings = with_bands(settings)
    hashes = hash_each(texts)
    hashed = Hashed(hashes.high, hashes.low, hashes.rows)
    later, first = copies(hashed)
    exact = np.stack([hashed.keys[first], hashed.keys[later]], axis=1)
    rows = np.flatnonzero(pc.binary_length(texts).to_numpy() > 0)
    rows = rows[~np.isin(rows, exact[:, 1])]
    signatures = text_signatures(texts.take(pa.array(rows)), settings)
    rule = ChainRule(settings.chain_links, settings.bucket_limit)
    found, _ = candidate_pairs(band_keys(signatures, settings.bands, settings.rows), rows, rule)
    left, right = found.T
    coefficients = jaccard(shingle_sets(texts, settings.shingle_size), left, right)
    kept = coefficients >= settings.threshold
    if settings.same_numbers:
        kept &= ~have_other_words(shingle_sets(numbers_of(titles), 1), left, right)
    kept &= ~have_other_words(shingle_sets(words_of_short(texts, settings.short_text, language), 1), left, right)
    pairs = np.concatenate([exact, found[kept]])
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    is_exact = np.arange(len(pairs)) < len(exact)
    return NearPairs(pairs[order], is_exact[order], np.concatenate([np.ones(len(exact)), coefficients[kept]])[order])
