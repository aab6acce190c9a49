"""The fabricated run with embeddings: vectors by chance, in two files, of all questions but a copy."""

import numpy as np
import pyarrow as pa
from fabricated_run import COPIES, QUESTIONS, build_run, write_encoder

from dupq import storage, tables

DIMENSIONS = 5
HIGHEST = 2.5  # score


def build_embedded_run(folder: str) -> str:
    run = build_run(folder)
    keys = [key for key in QUESTIONS if key != COPIES[1]]
    schema = tables.embeddings(DIMENSIONS, is_lexical=False)
    for part, own in enumerate((keys[1::2], keys[::2])):
        vectors = np.random.default_rng(part).normal(size=(len(own), DIMENSIONS)) * np.arange(1, DIMENSIONS + 1)
        flat = pa.array(vectors.astype(np.float16).ravel())
        rows = {
            "site": [site for site, _ in own],
            "question_id": [number for _, number in own],
            "embedding": pa.FixedSizeListArray.from_arrays(flat, DIMENSIONS),
            "fingerprint": [0] * len(own),
        }
        storage.write_table(storage.join(run, "embeddings", f"part-{part:05}.parquet"), pa.table(rows), schema)
    write_encoder(run, storage.join(folder, "encoder"), dense=1.5, lexical=1.0)
    return run
