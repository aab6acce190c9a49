"""embeddings → neighbours by a GPU, which holds all questions that are compared with each other.

    search        a task a group    the lists of all its questions, by block (neighbours/gpu/)
    neighbours    a task a block    the same, and rows for the pairs stage

A group is all blocks or, with neighbours.scope=site, those of a site; several GPUs search several groups. A search that
is interrupted begins anew: it takes minutes at most.
"""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from dupq import devices, storage
from dupq.execution import cluster
from dupq.execution.gpus import are_given
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import gpu_can_search
from dupq.neighbours.nearest import Nearest
from dupq.runs.embeddings import read_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import block_name
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest, nearest_table, read_nearest, write_lists
from dupq.tables import NEAREST
from dupq.text.keys import Sites

_CPU_RATE, _GPU_RATE = 0.22e12, 4e14  # operations a second, of a core and of a GPU: 2 for each dimension of each pair
_GPU_SECONDS, _SECONDS_A_QUESTION = 8.0, 5e-6  # to start its process, and to read, upload and write
_FILES_AHEAD = 8
_log = logging.getLogger(__name__)


def gpus_of_search(files: NeighbourFiles, request: SearchRequest, plan: Plan, groups: Sequence[int]) -> int:
    """How many GPUs search groups of so many questions; 0: CPUs do, as GPUs cannot or, with `auto`, are not faster."""
    gpus = request.gpus.now() if gpu_can_search(request.measure) else 0
    if not gpus or request.gpus.wanted is not None:
        return gpus
    on_cpus, on_gpus = seconds(files, plan, sum(size * size for size in groups))
    if on_cpus < on_gpus:
        _log.info(f"searched by CPUs, some {on_cpus:.0f} s; a GPU would take {on_gpus:.0f} s")
        return 0
    return gpus


def seconds(files: NeighbourFiles, plan: Plan, pairs: float) -> tuple[float, float]:
    """About what the CPUs of the cluster take to compare so many pairs, and what a GPU takes with all questions."""
    schema = storage.read_schema(storage.join(files.embeddings, plan.blocks[0][0].file))
    operations = 2.0 * pairs * schema.field("embedding").type.list_size
    on_gpus = _GPU_SECONDS + _SECONDS_A_QUESTION * plan.questions + operations / _GPU_RATE
    return operations / (_CPU_RATE * cluster.cpus()), on_gpus


def search_on_gpus(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, groups: Sequence[list[int]], gpus: int
) -> tuple[Report, Report]:
    """Write the neighbours of the blocks of some groups: the report of the search, that of what is written."""
    report = run_tasks("search", _search_group, [(files, request, plan, group) for group in groups], gpus=gpus)
    calls = [(files, request, block_name(number)) for group in groups for number in group]
    return report, run_tasks("neighbours", _write_lists, calls)


def _search_group(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    """Memory of the host: some files of embeddings, and all lists, 16 bytes a neighbour."""
    outputs = [files.step("searched", block_name(number)) for number in group]

    def make() -> Counts:
        from dupq.neighbours.gpu.search import nearest_of_all

        device = devices.usable(devices.GPU if are_given() else devices.CPU)
        spans = _embeddings_of(files, request, plan, group)
        found = nearest_of_all(spans, request.measure, request.settings.k, device)
        for number, output in zip(group, outputs, strict=True):
            keys, lists = zip(*(next(found) for _ in plan.blocks[number]), strict=True)
            order = np.argsort(np.concatenate(keys))
            columns = (np.concatenate(column)[order] for column in zip(*lists, strict=True))
            storage.write_table(output, nearest_table(np.concatenate(keys)[order], Nearest(*columns)), NEAREST)
        return {}

    return skip_or(outputs[-1], make)


def _embeddings_of(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, group: Sequence[int]
) -> Iterator[Embeddings]:
    """The embeddings of each span of each block; each file is read once, some files ahead."""
    spans = [span for number in group for span in plan.blocks[number]]
    waiting: deque[Future[Embeddings]] = deque()
    names, whole, name = deque(dict.fromkeys(span.file for span in spans)), None, ""
    with ThreadPoolExecutor(_FILES_AHEAD) as pool:
        for span in spans:
            while names and len(waiting) < _FILES_AHEAD:
                uri = storage.join(files.embeddings, names.popleft())
                waiting.append(pool.submit(read_embeddings, uri, Sites(request.sites)))
            if span.file != name:
                whole, name = waiting.popleft().result(), span.file
            yield whole.take(slice(span.start, span.stop))


def _write_lists(files: NeighbourFiles, request: SearchRequest, name: str) -> Counts:
    def make() -> Counts:
        return write_lists(files, request, name, *read_nearest(files.step("searched", name), request.settings.k))

    return skip_or(files.list_of(name), make)
