"""Some questions of an archive, as a table of their keys."""

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.tables import KEYS


def write_keys(uri: str, keys: np.ndarray) -> None:
    """Write each of `keys` once, sorted."""
    storage.write_table(uri, pa.table([pa.array(np.unique(keys))], schema=KEYS), KEYS)


def read_keys(uri: str) -> np.ndarray:
    """The keys that `write_keys` wrote."""
    return storage.read_table(uri, KEYS)["key"].to_numpy()
