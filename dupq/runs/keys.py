"""The keys of an archive's questions: of all, and tables of those of some."""

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.tables import KEYS, TEXTS


def write_keys(uri: str, keys: np.ndarray) -> None:
    """Write each of `keys` once, sorted."""
    storage.write_table(uri, pa.table([pa.array(np.unique(keys))], schema=KEYS), KEYS)


def read_keys(uri: str) -> np.ndarray:
    """The keys that `write_keys` wrote."""
    return storage.read_table(uri, KEYS)["key"].to_numpy()


def all_keys(folder: str) -> np.ndarray:
    """The keys of all questions, sorted: 8 bytes each."""
    files = storage.list_files(folder, ".parquet")
    return np.sort(np.concatenate([storage.read_table(file.uri, TEXTS, ["key"])["key"].to_numpy() for file in files]))
