"""A run's pairs and clusters → how many there are of each kind: a task a file, and a sum."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from dupq import storage
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs.layout import EvaluationFiles
from dupq.tables import CLUSTERS, PAIRS


class Counted(NamedTuple):
    """The sums over all files."""

    sites: dict[str, int]  # questions of each that has any
    in_clusters: int  # questions in clusters of two and more
    sources: Counter[str]  # pairs of each
    above: int  # the encoder's pairs above the threshold


class _OfFile(TypedDict):
    by_name: dict[str, int]
    some: int


def count_tables(files: EvaluationFiles) -> Report:
    """Count what is in each file of the clusters and of the pairs. Memory: two columns of a file."""
    report = run_tasks("count", _count_clusters, [(files, name) for name in _names(files.clusters)])
    report.add(run_tasks("count", _count_pairs, [(files, name) for name in _names(files.pairs)]))
    return report


def read_counts(files: EvaluationFiles) -> Counted:
    """What `count_tables` counted."""
    clusters, pairs = (
        _sum([storage.read_json(_place(files, kind, name)) for name in _names(folder)])
        for kind, folder in (("clusters", files.clusters), ("pairs", files.pairs))
    )
    return Counted(dict(clusters[0]), clusters[1], pairs[0], pairs[1])


def _sum(found: list[_OfFile]) -> tuple[Counter[str], int]:
    by_name: Counter[str] = Counter()
    for one in found:
        by_name.update(one["by_name"])
    return by_name, sum(one["some"] for one in found)


def _names(folder: str) -> list[str]:
    return [file.relative for file in storage.list_files(folder, ".parquet")]


def _place(files: EvaluationFiles, kind: str, name: str) -> str:
    return storage.join(files.work, "counts", kind, f"{name}.json")


def _count_clusters(files: EvaluationFiles, name: str) -> Counts:
    output = _place(files, "clusters", name)

    def make() -> Counts:
        table = storage.read_table(storage.join(files.clusters, name), CLUSTERS, ["site", "cluster_size"])
        _write(output, table["site"], pc.greater(table["cluster_size"], 1))
        return {}

    return skip_or(output, make)


def _count_pairs(files: EvaluationFiles, name: str) -> Counts:
    output = _place(files, "pairs", name)

    def make() -> Counts:
        threshold = np.float32(storage.read_json(files.threshold)["chosen"]["threshold"])
        table = storage.read_table(storage.join(files.pairs, name), PAIRS, ["source", "probability"])
        is_above = pc.greater_equal(table["probability"], threshold)
        _write(output, table["source"], pc.and_(is_above, pc.equal(table["source"], "encoder")))
        return {}

    return skip_or(output, make)


def _write(output: str, names: pa.ChunkedArray, some: pa.ChunkedArray) -> None:
    by_name = {row["values"]: row["counts"] for row in pc.value_counts(names).to_pylist()}
    storage.write_json(output, _OfFile(by_name=by_name, some=pc.sum(some).as_py() or 0))
