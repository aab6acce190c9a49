"""The GPUs of a job: how many it may use, a trial before any work, and the processes that keep them.

Ray gives a process another GPU from task to task, but CUDA stays on the one that the process saw first: two tasks would
share a GPU while another is idle. So GPU work runs in actors, which keep theirs. Starting Python, torch and CUDA takes
some 8 seconds, so an actor is kept from stage to stage, until the job ends or something else needs its GPU: the actors
of Ray Data, or the workers of Ray Train. It holds no CPU, as CPU tasks run between its stages.
"""

import contextlib
import functools
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dupq import system
from dupq.errors import ClusterError, DupqError
from dupq.job import cluster, progress
from dupq.system import lazy

if TYPE_CHECKING:
    import ray
else:
    ray = lazy("ray")  # with --ray none it is not needed

Result = TypeVar("Result")
_idle: list[Any] = []  # the job's processes that hold a GPU, and those that compute, by their calls
_busy: "dict[ray.ObjectRef[Any], Any]" = {}
_PATIENCE_SECONDS = 120  # for the trial of a GPU, which another job may hold
_log = logging.getLogger(__name__)
_warn = functools.cache(_log.warning)  # once


@contextlib.contextmanager
def enough_memory() -> Iterator[None]:
    """Raise DupqError if a GPU has too little memory for the block. Also a decorator."""
    try:
        yield
    except RuntimeError as error:
        torch = sys.modules.get("torch")  # without torch the error is not torch's
        if torch is None or not isinstance(error, torch.OutOfMemoryError):
            raise
        raise DupqError(
            f"a GPU of the node {socket.gethostname()} has too little memory ({str(error).partition(chr(10))[0]}); "
            "use one that nothing else uses, set encode.batch_size (to train: training.batch_size) lower, or run with "
            "--gpus none"
        ) from error


class _Worker:
    def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Return what `function` returns. Raises as `enough_memory`."""
        try:
            with enough_memory():
                return function(*arguments)
        finally:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # the next stage has tensors of other sizes


def start_on_gpu(
    function: Callable[..., Result], *arguments: object, node: str | None = None
) -> "ray.ObjectRef[Result]":
    """Call `function` in a process with a GPU: an idle one, else a new one, on `node` if given."""
    actor: Any = None if node is not None or not _idle else _idle.pop()
    if actor is None:
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        where = {} if node is None else {"scheduling_strategy": strategy(node, soft=False)}
        actor = ray.remote(_Worker).options(num_cpus=0, num_gpus=1, **where).remote()
    started: ray.ObjectRef[Result] = actor.call.remote(function, *arguments)
    _busy[started] = actor
    return started


def ended(call: "ray.ObjectRef[Result]", is_alive: bool = True) -> None:
    """Note that a call is over: its process is idle now, or lost. Does nothing for a call on CPUs."""
    actor = _busy.pop(call, None)
    if actor is not None and is_alive:
        _idle.append(actor)
    elif actor is not None:
        ray.kill(actor)


def end_gpu_processes() -> None:
    """End all processes that hold a GPU."""
    for call in [*_busy]:
        ended(call, is_alive=False)
    while _idle:
        ray.kill(_idle.pop())


@contextlib.contextmanager
def until_the_end() -> Iterator[None]:
    """End the job's GPU processes at the end of the block."""
    try:
        yield
    finally:
        for remembered in (_trials, _trouble, _warn):  # the next job of this process tries its GPUs again
            remembered.cache_clear()
        end_gpu_processes()


class Gpus(NamedTuple):
    """The GPUs that a job may use: a number, or None for those that the cluster has when a stage begins."""

    requested: int | None

    def now(self) -> int:
        """Return the number of GPUs for a stage that begins now; 0 means CPUs.

        Waits for the trial of the GPUs if it is not over.
        """
        if self.requested is not None:
            return self.requested
        count = cluster.gpus()
        trouble = _trouble(_nodes_with_gpus()) if count else None
        if trouble is not None:
            _warn(f"all is computed on CPUs: {trouble}")
        return 0 if trouble else count


NO_GPUS = Gpus(0)


def gpus_for(requested: int | None) -> Gpus:
    """Return the GPUs of a job before any work; `requested` is the value of --gpus, None for auto.

    Starts their trial. If torch cannot use one, `auto` continues on CPUs with a warning when a stage first asks. Raises
    ClusterError if a number is requested and they cannot be used, or do not exist and no node may join the cluster.
    """
    if requested == 0:
        return NO_GPUS
    count = cluster.gpus()
    if requested is None:
        if count:
            _trials(_nodes_with_gpus())  # while the first stages run on CPUs
        return Gpus(None)
    if requested > count:
        shortage = f"--gpus {requested}: the cluster has {count}"
        if not cluster.may_grow():
            raise ClusterError(f"{shortage}; ask for fewer, or join a larger cluster with --ray")
        progress.progress_line(_log, f"{shortage} now; it is asked for more when they are needed")
    trouble = _trouble(_nodes_with_gpus()) if count else None
    if trouble is not None:
        raise ClusterError(f"--gpus {requested}: {trouble}; mend its driver or torch, or run with --gpus none")
    return Gpus(requested)


def if_faster(gpus: Gpus, work: str, on_cpus: float, on_gpus: float) -> Gpus:
    """Return the GPUs of a stage; with `auto` none, and a line, if the CPUs take less time (seconds)."""
    if gpus.requested is not None or not cluster.gpus() or on_gpus < on_cpus:
        return gpus
    _log.info(f"{work} by CPUs, some {on_cpus:.0f} s; a GPU would take {on_gpus:.0f} s")
    return NO_GPUS


def _nodes_with_gpus() -> tuple[tuple[str, str], ...]:  # ids and addresses
    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0) >= 1]
    return tuple(sorted((node["NodeID"], node["NodeManagerAddress"]) for node in alive))


@functools.lru_cache(maxsize=1)
def _trials(nodes: tuple[tuple[str, str], ...]) -> "dict[ray.ObjectRef[str | None], tuple[str, str]]":
    """Start the trial of a GPU of each node, in the process that the first stage will use."""
    end_gpu_processes()  # of an earlier trial, on other nodes: an idle process would keep its GPU from this one
    return {start_on_gpu(system.trouble_with, system.GPU, node=node): (node, address) for node, address in nodes}


@functools.lru_cache(maxsize=1)
def _trouble(nodes: tuple[tuple[str, str], ...]) -> str | None:
    """Return why torch cannot use the GPUs of these nodes; None if it can, or if they were not free to try."""
    trials = _trials(nodes)
    done, late = ray.wait(list(trials), num_returns=len(trials), timeout=_PATIENCE_SECONDS)
    for trial in late:
        ended(trial, is_alive=False)
        _log.warning(f"the GPUs of the node {trials[trial][1]} were not tried: none was free")
    alive = {node for node, _ in _nodes_with_gpus()}  # the loss of a node is not a fault of its GPUs
    troubles = []
    for trial in done:
        try:
            trouble = ray.get(trial)
        except ray.exceptions.RayError as error:
            trouble = f"the trial ended with {type(error).__name__}"
        ended(trial, is_alive=trouble is None)
        node, address = trials[trial]
        if trouble is not None and node in alive:
            troubles.append(f"torch cannot use the GPUs of the node {address}: {trouble}")
    return next(iter(troubles), None)


def has_gpu() -> bool:
    """Return whether this is a task or an actor with a GPU from Ray."""
    is_on_ray = sys.modules.get("ray") and ray.is_initialized()
    return bool(is_on_ray and ray.get_runtime_context().get_accelerator_ids().get("GPU"))
