"""embeddings → neighbours, by the method that the settings name."""

from collections.abc import Sequence

from dupq.execution.tasks import Report
from dupq.runs.layout import NeighbourFiles
from dupq.shards import Shard
from dupq.stages.neighbours.approximate import find_approximately
from dupq.stages.neighbours.exact import find_exactly
from dupq.stages.neighbours.tables import SearchRequest


def find_neighbours(files: NeighbourFiles, shards: Sequence[Shard], request: SearchRequest) -> Report:
    """Write the neighbours of every embedded question."""
    search = find_approximately if request.settings.method == "ivf" else find_exactly
    return search(files, shards, request)
