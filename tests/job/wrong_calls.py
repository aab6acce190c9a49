"""Calls of a step. All but the last do not fit it: the runner refuses them, and so does mypy.

mypy reads this file with the package. An ignored error that it did not find would be an error of its own.
"""

from collections.abc import Iterator

import pyarrow as pa

from dupq import kinds
from dupq.job.run import Run
from dupq.job.step import step
from dupq.job.table import Streamed, Table
from dupq.kinds import streamed
from dupq.tables import KEY_PAIRS, KEYS, RARITIES


@step(KEYS, KEY_PAIRS, streamed(RARITIES), makes=KEYS)
def chosen(keys: pa.Table, pairs: pa.Table, rarities: Iterator[pa.Table], most: int) -> pa.Table:
    return keys.slice(0, most)


def calls(
    run: Run, n: int, keys: Table[kinds.Key], pairs: Table[kinds.KeyPair], rarities: Table[kinds.Rarity]
) -> Table[kinds.Key]:
    call = run.map("chosen", chosen)
    if n == 1:
        call(pairs, keys, Streamed(rarities), 1)  # type: ignore
    if n == 2:
        call(keys, Streamed(rarities), 1)  # type: ignore
    if n == 3:
        call(keys, rarities, Streamed(rarities), 1)  # type: ignore
    if n == 4:
        call(keys, pairs, rarities, 1)  # type: ignore
    return call(keys, pairs, Streamed(rarities), 1)
