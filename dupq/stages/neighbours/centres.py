"""The centroids of the inverted lists: how many, of which questions, and their files."""

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dupq import storage, tables
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import gathered
from dupq.runs.embeddings import read_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import block_name
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest
from dupq.text.keys import Sites

if TYPE_CHECKING:
    from dupq.neighbours.ivf import Centroids

_log = logging.getLogger(__name__)
# questions that the centroids are made from; more than the second number only where there are more lists
_SAMPLE_A_LIST, _MOST_SAMPLED = 64, 1 << 18


def group_name(group: Sequence[int]) -> str:
    """The name of a group of blocks that are compared with each other."""
    return f"group-{group[0]:05d}"


def lists_wanted(plan: Plan, group: Sequence[int]) -> int:
    """How many lists a group has; one a block at least: a task holds two spans, each of a list at least."""
    return max(len(group), _root(plan, group))


def _root(plan: Plan, group: Sequence[int]) -> int:
    """Return the number of lists that takes the least work: a list has as many questions as there are lists."""
    return max(1, round(math.sqrt(sum(map(plan.rows, group)))))


def say_if_more_lists(plan: Plan) -> None:
    """Say where there are more lists than the root of the questions."""
    raised = [group for group in plan.groups if len(group) > _root(plan, group)]
    if raised:
        least = max(map(len, raised))
        _log.warning(
            f"{least:,} lists, as there are so many blocks of questions and a list is to be no larger; with larger "
            "blocks what is found does not depend on the cut"
        )


def share_for_centroids(plan: Plan, group: Sequence[int]) -> float:
    """The share of a group's questions that its centroids are made from."""
    lists = lists_wanted(plan, group)
    return max(lists, min(_MOST_SAMPLED, _SAMPLE_A_LIST * lists)) / sum(map(plan.rows, group))


def make_centroids(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    """A task. Memory: see ivf.centroids, for 262,144 questions (or as many as lists); 6 bytes a dimension of these."""
    output = files.step("centres", group_name(group))

    def make() -> Counts:
        from dupq.neighbours.exact import rule_of, side_of
        from dupq.neighbours.ivf import centroids, unit_hashes

        uris = [files.step("sample", block_name(number)) for number in group]
        sample = gathered([read_embeddings(uri, Sites(request.sites))._replace(words=None) for uri in uris])
        sample = sample.take(np.argsort(unit_hashes(sample.keys), kind="stable"))
        rule = rule_of(request.measure)
        made = centroids(side_of(sample, rule), rule, lists_wanted(plan, group))
        dimensions = made.points.shape[1]
        points = pa.FixedSizeListArray.from_arrays(pa.array(made.points.ravel()), dimensions)
        schema = tables.centroids(dimensions)
        columns = [points, pa.array(np.full(len(points), made.longest)), pa.array(made.sizes)]
        table = pa.table(columns, schema=schema)
        storage.write_table(output, table, schema)
        return {}

    return skip_or(output, make)


def read_centroids(files: NeighbourFiles, group: Sequence[int]) -> "Centroids":
    """The centroids of a group's lists."""
    from dupq.neighbours.ivf import Centroids

    table = storage.read_table(files.step("centres", group_name(group))).combine_chunks()
    points = table["centre"].combine_chunks()
    flat = points.flatten().to_numpy().reshape(len(points), -1)
    return Centroids(flat, table["longest"][0].as_py(), table["size"].to_numpy())


def read_spans(files: NeighbourFiles, group: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of a group's lists, as many as it has blocks, each of about as many questions as a block."""
    from dupq.neighbours.ivf import spans

    table = storage.read_table(files.step("centres", group_name(group)), columns=["size"])
    return spans(table["size"].to_numpy(), len(group))


def span_name(group: Sequence[int], place: int) -> str:
    """The name of a range of a group's lists, as blocks have one."""
    return f"{group_name(group)}-{place:05d}"
