"""A run's signatures as datasketch's MinHash and MinHashLSH, for look-ups in a notebook.

    from dupq.near_duplicates.datasketch_lsh import run_lsh, run_settings, text_minhash

    lsh = run_lsh("out/sample/runs/0123456789abcdef")
    lsh.query(text_minhash("How do I bake bread?", run_settings("out/sample/runs/0123456789abcdef")))

Exact copies of a question have no signature of their own: look up the canonical question of their cluster.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from datasketch import LeanMinHash, MinHash, MinHashLSH

from dupq import storage
from dupq.errors import DupqError
from dupq.near_duplicates.band_choice import bands_of
from dupq.near_duplicates.shingles import compared, shingle
from dupq.near_duplicates.signatures import SCHEME, SEED, permutations, text_signatures
from dupq.settings import config
from dupq.settings.near_duplicates import NearDuplicateSettings
from dupq.tables import signatures
from dupq.text.tokens import tokens

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
