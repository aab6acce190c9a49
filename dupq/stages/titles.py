"""The titles and tags of some questions, from the shards of the archive: a task a shard."""

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.worklist import Titled
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.shards import Shard, read_shard
from dupq.tables import QUESTIONS, TEXTS
from dupq.text.keys import Sites, are_among

_TITLES = pa.schema([TEXTS.field("key"), *(QUESTIONS.field(name) for name in ("title", "tags"))])


def read_titles(
    label: str, folder: str, keys: np.ndarray, shards: list[Shard], sites: Sites
) -> tuple[Report, dict[int, Titled]]:
    """The questions of `keys` (int64, sorted, few) by key, and what reading them took; `folder` is for the tasks."""
    report = run_tasks(label, _of_shard, [(folder, sites.names, keys, shard) for shard in shards])
    tables = [storage.read_table(storage.join(folder, shard.file), _TITLES) for shard in shards]
    rows = (row for table in tables for row in table.to_pylist())
    return report, {row["key"]: Titled(row["title"], row["tags"]) for row in rows}


def _of_shard(folder: str, site_names: list[str], wanted: np.ndarray, shard: Shard) -> Counts:
    output = storage.join(folder, shard.file)

    def make() -> Counts:
        table = read_shard(shard, QUESTIONS, ["question_id", "title", "tags"])
        keys = Sites(site_names).pack(shard.site, table["question_id"].to_numpy(), shard.uri)
        found = pa.table([pa.array(keys), table["title"], table["tags"]], schema=_TITLES)
        storage.write_table(output, found.filter(pa.array(are_among(wanted, keys))), _TITLES)
        return {}

    return skip_or(output, make)
