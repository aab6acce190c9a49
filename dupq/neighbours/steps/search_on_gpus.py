"""embeddings → neighbours by a GPU, which holds all questions that are compared with each other.

    search    a task per group    the lists of all its questions (neighbours/gpu/), and rows for `pairs`

A group is all blocks or, with neighbours.scope=site, those of a site; several GPUs search several groups. A search that
is interrupted begins again: it takes minutes at most.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np

from dupq import devices, storage
from dupq.execution import cluster
from dupq.execution.gpus import are_given
from dupq.execution.tasks import run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.job.run import Run, write_spread
from dupq.job.table import Spread, Table
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import gpu_can_search
from dupq.neighbours.nearest import Nearest
from dupq.neighbours.plan import Plan
from dupq.neighbours.steps.blocks import Questions, SearchRequest, blocks_of, listed
from dupq.recording import Written, note, recording
from dupq.runs.embeddings import read_embeddings
from dupq.tables import NEAREST, NEIGHBOURS
from dupq.text.keys import Sites

_CPU_RATE, _GPU_RATE = 0.22e12, 4e14  # operations a second, of a core and of a GPU: 2 for each dimension of each pair
_GPU_SECONDS, _SECONDS_A_QUESTION = 8.0, 5e-6  # to start its process, and to read, upload and write
_AT_ONCE = 8  # files that are read or written, by as many threads
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


def gpus_of_search(run: Run, request: SearchRequest, plan: Plan) -> int:
    """Return how many GPUs search; 0: CPUs do, as GPUs cannot or, with `auto`, are not faster."""
    gpus = request.gpus.now() if gpu_can_search(request.measure) else 0
    if not gpus or request.gpus.wanted is not None:
        return gpus
    on_cpus, on_gpus = seconds(run, plan, compared_pairs(plan))
    if on_cpus < on_gpus:
        _log.info(f"searched by CPUs, some {on_cpus:.0f} s; a GPU would take {on_gpus:.0f} s")
        return 0
    return gpus


def compared_pairs(plan: Plan) -> int:
    """Return how many pairs of questions a search of everything compares, each in both directions."""
    sizes = plan.sizes
    return sum(sum(sizes[number] for number in group) ** 2 for group in plan.groups)


def seconds(run: Run, plan: Plan, pairs: float) -> tuple[float, float]:
    """Return about what the cluster's CPUs take to compare so many pairs, and what a GPU takes with all questions."""
    schema = storage.read_schema(storage.join(run.uri, "embeddings", plan.blocks[0][0].file))
    operations = 2.0 * pairs * schema.field("embedding").type.list_size
    on_gpus = _GPU_SECONDS + _SECONDS_A_QUESTION * plan.questions + operations / _GPU_RATE
    return operations / (_CPU_RATE * cluster.cpus()), on_gpus


class _Lists(NamedTuple):
    """The tables to be made, a partition per block."""

    directed: Spread
    nearest: Table


def search_on_gpus(run: Run, plan: Plan, request: SearchRequest, gpus: int) -> None:
    """Make the lists of all blocks (`nearest`, `directed`)."""
    blocks = blocks_of(run, plan, request)
    directed = run.spread("directed", NEIGHBOURS, len(blocks), request.parts, by="left")
    made = _Lists(directed, run.table("nearest", NEAREST, len(blocks)))
    calls = [(made, request.settings.k, [(number, blocks[number]) for number in group]) for group in plan.groups]
    report = run_tasks("search", _search_group, calls, gpus=gpus)
    run.report.add(report)
    run.report.rows_in += report.rows_in


def _search_group(made: _Lists, k: int, group: Sequence[tuple[int, Questions]]) -> Counts:
    """Memory of the host: some files of embeddings, and of some blocks the lists."""
    measure = group[0][1].measure

    def make() -> Counts:
        from dupq.neighbours.gpu.search import nearest_of_all

        device = devices.usable(devices.GPU if are_given() else devices.CPU)
        found = nearest_of_all(_embeddings_of([block for _, block in group]), measure, k, device)

        def write(number: int, pieces: list[tuple[np.ndarray, Nearest]]) -> tuple[int, dict[str, Written]]:
            keys = np.concatenate([some for some, _ in pieces])
            order = np.argsort(keys)
            columns = (np.concatenate(column)[order] for column in zip(*(lists for _, lists in pieces), strict=True))
            rows = listed(keys[order], Nearest(*columns), measure)
            with recording() as written:  # by this thread
                storage.write_table(made.nearest.file(number), rows.second, NEAREST)
                write_spread(made.directed, number, rows.table)
            return len(keys), written

        rows = 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            calls = ((number, [next(found) for _ in block.spans]) for number, block in group)
            for count, written in _ahead(pool, write, calls):
                note(written)
                rows += count
        return {"rows_in": rows, "rows_out": rows}

    return skip_or(made.directed.files[group[-1][0]], make)


def _embeddings_of(blocks: Sequence[Questions]) -> Iterator[Embeddings]:
    """Yield the embeddings of each span of each block; each file is read once."""
    spans = [span for block in blocks for span in block.spans]
    names, name, whole = dict.fromkeys(span.file for span in spans), "", None
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        read = _ahead(pool, read_embeddings, ((file, Sites([*blocks[0].sites])) for file in names))
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
