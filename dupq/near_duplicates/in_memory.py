"""Near duplicates without files: of texts in memory, in one process what the stages do shard by shard; and a run's
signatures as datasketch's MinHash and MinHashLSH, for look-ups in a notebook.

    from dupq.near_duplicates.in_memory import run_lsh, run_settings, text_minhash

    lsh = run_lsh("out/sample/runs/0123456789abcdef")
    lsh.query(text_minhash("How do I bake bread?", run_settings("out/sample/runs/0123456789abcdef")))

Exact copies of a question have no signature of their own: look up the canonical question of their cluster.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasketch import LeanMinHash, MinHash, MinHashLSH

from dupq import storage
from dupq.errors import DupqError
from dupq.near_duplicates.asking import Asking
from dupq.near_duplicates.minhash import SCHEME, SEED, band_keys, bands_of, permutations, text_signatures
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
from dupq.near_duplicates.shingles import compared, jaccard, shingle, shingle_sets
from dupq.settings import config
from dupq.settings.sections import NearDuplicateSettings
from dupq.tables import signatures
from dupq.text.keys import distinct
from dupq.text.tokens import tokens


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


_AT_ONCE = 8_192  # signatures


class Signed(NamedTuple):
    """Questions, as `site/question_id`, and their signatures (uint32, shape (n, permutations))."""

    labels: list[str]
    signatures: np.ndarray


def minhash(signature: np.ndarray) -> MinHash:
    """One row of signatures as a MinHash that can be compared, merged, and updated with further shingles."""
    drawn = np.stack(permutations(len(signature)))
    return MinHash(seed=SEED, hashvalues=signature.copy(), permutations=drawn, scheme=SCHEME, hashfunc=shingle_hash)


def lean_minhash(signature: np.ndarray) -> LeanMinHash:
    """One row of signatures as a LeanMinHash, which takes the least memory."""
    return LeanMinHash(seed=SEED, hashvalues=signature, scheme=SCHEME)


def text_minhash(text: str, settings: NearDuplicateSettings, is_title: bool = False) -> MinHash:
    """The MinHash of any text, tokenised as questions are; `is_title`: as that of a question without a body."""
    column = pa.array([" ".join(tokens(text))], pa.string())
    titles = column if is_title else pa.array([""], pa.string())
    return minhash(text_signatures(compared(titles, column), settings)[0])


def shingle_hash(words: bytes) -> int:
    """The 32 bits that a signature sees of a shingle: its words in UTF-8, joined by single spaces."""
    column = pa.array([words], pa.binary()).cast(pa.string())
    return int(shingle(column, max(1, len(words))).hashes[0] & np.uint64(0xFFFFFFFF))


def run_settings(run: str) -> NearDuplicateSettings:
    """The settings of a run's signatures."""
    return config.from_dict(storage.read_json(storage.join(run, "config.json"))).near_duplicates


def run_signatures(run: str) -> Iterator[Signed]:
    """The signatures of a run's questions that have a text and are no exact copies, some thousand at a time.

    Raises DupqError if the run has none.
    """
    schema = signatures(run_settings(run).permutations)
    files = storage.list_files(storage.join(run, "work", "signatures"), ".parquet")
    if not files:
        raise DupqError(f"{run}: no signatures in work/signatures; was work/ removed?")
    for file in files:
        for batch in storage.read_pieces(file.uri, schema, schema.names, _AT_ONCE):
            sites, ids = (batch[name].to_pylist() for name in ("site", "question_id"))
            values = batch["signature"].flatten().to_numpy().reshape(len(batch), -1)
            yield Signed([f"{site}/{number}" for site, number in zip(sites, ids, strict=True)], values)


def run_lsh(run: str) -> MinHashLSH:
    """A MinHashLSH of the questions of a run, by `site/question_id`, with the run's bands and rows.

    It holds Python objects, about 7 kB a question: for an archive of up to a million.
    """
    settings = run_settings(run)
    lsh = MinHashLSH(num_perm=settings.permutations, params=bands_of(settings))
    with lsh.insertion_session() as session:
        for signed in run_signatures(run):
            for label, signature in zip(signed.labels, signed.signatures, strict=True):
                session.insert(label, lean_minhash(signature), check_duplication=False)
    return lsh
