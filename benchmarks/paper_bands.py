"""How often systems of dos Santos et al.'s table 3 find a duplicate, by how many words it shares with the question.

    python benchmarks/paper_bands.py --output out/papers [--data FOLDER]

after `benchmarks/papers.py --output out/papers` of the same version: Accuracy@10 on titles of travel and quora, by the
Jaccard coefficient of the words of a test question and of its known duplicate that shares most (docs/papers.md).
"""

import argparse
import itertools
import os
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dupq import storage
from dupq.job import cluster
from dupq.settings.sections import TextSettings
from dupq_papers.experiments.choice import shown
from dupq_papers.experiments.data_sets import read
from dupq_papers.experiments.sources import Source
from dupq_papers.job import PapersJob
from dupq_papers.steps import opened, place_of

TABLE, PAIR_SETS, SHOWN = "dos-santos-3", ("quora", "arabic", "semeval"), ("travel", "quora")
SYSTEMS = ("BM25", "CNN", "BOW-CNN", "dupq")
BANDS = (0.0, 0.1, 0.2, 0.35, 0.5, 1.01)


def main() -> None:
    """Print a table a data set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    shared = os.environ.get("DUPQ_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", default=shared, type=Path)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    questions, links = (f"{options.output}/archive/{name}" for name in ("questions", "links"))
    job = PapersJob(questions, links, options.output, (TABLE,), tuple(f"{options.data}/{name}" for name in PAIR_SETS))
    sources = job.check().sources
    cluster.connect()
    work = opened(f"{options.output}/work/papers", sources)
    for one in shown((TABLE,), sources, False):
        if one.source.name in SHOWN:
            parts = {label: storage.read_json(place_of(one.parts[label], work)) for label in SYSTEMS}
            found = {label: np.array(part["each"]["accuracy_at_10"]) for label, part in parts.items()}
            show(one.source.name, shared_words(one.source, options.output), found)


def shared_words(source: Source, output: str) -> np.ndarray:
    """For each test question the largest coefficient of its known duplicates."""
    texts = read(source, TextSettings()).texts
    titles = zip(texts["key"].to_pylist(), texts["title"].to_pylist(), strict=True)
    words = {key: set(re.findall(r"\w+", title.lower())) for key, title in titles}
    queries = pq.read_table(f"{output}/papers/examples/{source.name}/queries.parquet").to_pylist()
    tests = [(words[row["key"]], [words[key] for key in row["duplicates"]]) for row in queries if row["part"] == "test"]
    return np.array([max(len(own & other) / max(1, len(own | other)) for other in others) for own, others in tests])


def show(name: str, shares: np.ndarray, found: dict[str, np.ndarray]) -> None:
    print(f"{name}: shared words, questions, {', '.join(found)}")
    for low, high in itertools.pairwise(BANDS):
        inside = (shares >= low) & (shares < high)
        if inside.any():
            print(
                f"  {low:.2f}  {inside.sum():5}", *(f"{100 * values[inside].mean():6.1f}" for values in found.values())
            )


if __name__ == "__main__":
    main()
