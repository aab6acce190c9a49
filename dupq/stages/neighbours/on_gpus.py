"""embeddings → neighbours by a GPU, which holds all questions that are compared with each other.

    search    a task a group    the lists of all its questions (neighbours/gpu/), and rows for the pairs stage

A group is all blocks or, with neighbours.scope=site, those of a site; several GPUs search several groups. A search that
is interrupted begins anew: it takes minutes at most.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from dupq import devices, storage
from dupq.execution import cluster
from dupq.execution.gpus import are_given
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import gpu_can_search
from dupq.neighbours.nearest import Nearest
from dupq.recording import Written, note, recording
from dupq.runs.embeddings import read_embeddings
from dupq.runs.layout import NeighbourFiles
from dupq.stages.neighbours.blocks import block_name
from dupq.stages.neighbours.plan import Plan
from dupq.stages.neighbours.tables import SearchRequest, write_lists
from dupq.text.keys import Sites

_CPU_RATE, _GPU_RATE = 0.22e12, 4e14  # operations a second, of a core and of a GPU: 2 for each dimension of each pair
_GPU_SECONDS, _SECONDS_A_QUESTION = 8.0, 5e-6  # to start its process, and to read, upload and write
_AT_ONCE = 8  # files that are read or written, by as many threads
Result = TypeVar("Result")
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
    """Write the neighbours of the blocks of some groups: an empty report, and that of what is written."""
    calls = [(files, request, plan, group) for group in groups]
    return Report(), run_tasks("search", _search_group, calls, gpus=gpus)


def _search_group(files: NeighbourFiles, request: SearchRequest, plan: Plan, group: list[int]) -> Counts:
    """Memory of the host: some files of embeddings, and of some blocks the lists."""

    def make() -> Counts:
        from dupq.neighbours.gpu.search import nearest_of_all

        device = devices.usable(devices.GPU if are_given() else devices.CPU)
        spans = _embeddings_of(files, request, plan, group)
        found = nearest_of_all(spans, request.measure, request.settings.k, device)

        def write(number: int, pieces: list[tuple[np.ndarray, Nearest]]) -> tuple[Counts, dict[str, Written]]:
            keys = np.concatenate([some for some, _ in pieces])
            order = np.argsort(keys)
            columns = (np.concatenate(column)[order] for column in zip(*(lists for _, lists in pieces), strict=True))
            with recording() as written:  # by this thread
                return write_lists(files, request, block_name(number), keys[order], Nearest(*columns)), written

        rows = 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            calls = ((number, [next(found) for _ in plan.blocks[number]]) for number in group)
            for counts, written in _ahead(pool, write, calls):
                note(written)
                rows += counts["rows_out"]
        return {"rows_in": rows, "rows_out": rows}

    return skip_or(files.list_of(block_name(group[-1])), make)


def _embeddings_of(
    files: NeighbourFiles, request: SearchRequest, plan: Plan, group: Sequence[int]
) -> Iterator[Embeddings]:
    """The embeddings of each span of each block; each file is read once."""
    spans = [span for number in group for span in plan.blocks[number]]
    names, name, whole = dict.fromkeys(span.file for span in spans), "", None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        calls = ((storage.join(files.embeddings, file), Sites(request.sites)) for file in names)
        read = _ahead(pool, read_embeddings, calls)
        for span in spans:
            if whole is None or span.file != name:
                whole, name = next(read), span.file
            yield whole.take(slice(span.start, span.stop))


def _ahead(
    pool: ThreadPoolExecutor, work: Callable[..., Result], calls: Iterable[tuple[object, ...]]
) -> Iterator[Result]:
    """What `work` gives for each call, in their order, some calls ahead."""
    waiting: deque[Future[Result]] = deque()
    for call in calls:
        if len(waiting) == _AT_ONCE:
            yield waiting.popleft().result()
        waiting.append(pool.submit(work, *call))
    while waiting:
        yield waiting.popleft().result()
