"""How many GPUs a job may take, tried before any work, and hidden from tasks that asked for none."""

import contextlib
import functools
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import ray

from dupq import system
from dupq.errors import ClusterError, DupqError
from dupq.job import cluster
from dupq.runs import progress

# Processes that each keep one GPU for a job.
#
# Ray gives a process of tasks another GPU from task to task, but CUDA stays on the one that the process saw first: two
# tasks would share a GPU while another is idle. So what needs a GPU runs in actors, which keep theirs. To start Python,
# torch and CUDA takes some 8 seconds, so an actor is kept from stage to stage, until the job ends or something else
# needs its GPU: the actors of Ray Data, the workers of Ray Train. It holds no CPU, as tasks on CPUs run between its
# stages.

Result = TypeVar("Result")


class _Worker:
    """The actor's code."""

    def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Return what `function` returns. Raises DupqError if the GPU has too little memory."""
        try:
            return function(*arguments)
        except RuntimeError as error:
            torch = sys.modules.get("torch")  # not imported for an error of something else
            if torch is None or not isinstance(error, torch.OutOfMemoryError):
                raise
            raise DupqError(
                f"a GPU of the node {socket.gethostname()} has too little memory ({str(error).partition(chr(10))[0]}); "
                "use one that nothing else uses, set encode.batch_size lower, or run with --gpus none"
            ) from error
        finally:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # for the next stage, whose tensors have other sizes


class GpuWorkers:
    """The GPU processes of this job, made when they are wanted."""

    def __init__(self) -> None:
        """Start none yet."""
        self._idle: list[Any] = []
        self._busy: dict[ray.ObjectRef[Any], Any] = {}

    def start(
        self, function: Callable[..., Result], *arguments: object, node: str | None = None
    ) -> "ray.ObjectRef[Result]":
        """Call `function` in a process with a GPU: an idle one, else a new one, on this `node` if one is named."""
        actor: Any = None if node is not None or not self._idle else self._idle.pop()
        if actor is None:
            where = {} if node is None else {"scheduling_strategy": cluster.only_on(node)}
            actor = ray.remote(_Worker).options(num_cpus=0, num_gpus=1, **where).remote()
        started: ray.ObjectRef[Result] = actor.call.remote(function, *arguments)
        self._busy[started] = actor
        return started

    def ended(self, call: "ray.ObjectRef[Result]", is_alive: bool = True) -> None:
        """Note that a call is over: its process is idle now, or lost. Does nothing for a call not started here."""
        actor = self._busy.pop(call, None)
        if actor is not None and is_alive:
            self._idle.append(actor)
        elif actor is not None:
            ray.kill(actor)

    def end(self) -> None:
        """End all processes, whatever they do."""
        for call in [*self._busy]:
            self.ended(call, is_alive=False)
        while self._idle:
            ray.kill(self._idle.pop())


WORKERS = GpuWorkers()


@contextlib.contextmanager
def until_the_end() -> Iterator[None]:
    """End the job's GPU processes with the block."""
    try:
        yield
    finally:
        WORKERS.end()


_PATIENCE_SECONDS = 120  # for the trial of a GPU: another job may have it
_log = logging.getLogger(__name__)


class Gpus(NamedTuple):
    """The GPUs that a job may take: so many, or None: those that the cluster has when they are wanted."""

    wanted: int | None

    def now(self) -> int:
        """Return how many there are for a stage that begins now; 0: it computes on CPUs.

        Waits for the trial of those that are there, if it is not over.
        """
        if self.wanted is not None:
            return self.wanted
        there = cluster.gpus()
        trouble = _trouble(_nodes_with_gpus()) if there else None
        if trouble is not None:
            _warn(f"all is computed on CPUs: {trouble}")
        return 0 if trouble else there


NO_GPUS = Gpus(0)


def gpus_for(wanted: int | None) -> Gpus:
    """Return the GPUs of a job, before any work; `wanted` is what --gpus says, None: auto.

    Those that are there are tried. If torch cannot use one, `auto` goes on with CPUs and says so, when a stage first
    asks. Raises ClusterError if a number is wanted and they cannot be used, or are not there and no node may join the
    cluster.
    """
    if wanted == 0:
        return NO_GPUS
    there = cluster.gpus()
    if wanted is None:
        if there:
            _begun(_nodes_with_gpus())  # beside the stages that need no GPU
        return Gpus(None)
    if wanted > there:
        said = f"--gpus {wanted}: the cluster has {there}"
        if not cluster.may_grow():
            raise ClusterError(f"{said}; ask for fewer, or join a larger cluster with --ray")
        progress.progress_line(_log, f"{said} now; it is asked for more when they are needed")
    trouble = _trouble(_nodes_with_gpus()) if there else None
    if trouble is not None:
        raise ClusterError(f"--gpus {wanted}: {trouble}; mend its driver or torch, or run with --gpus none")
    return Gpus(wanted)


def if_faster(gpus: Gpus, work: str, on_cpus: float, on_gpus: float) -> Gpus:
    """Return the GPUs of a stage: with `auto` none, and a line says so, where the CPUs take less time (seconds)."""
    if gpus.wanted is not None or not cluster.gpus() or on_gpus < on_cpus:
        return gpus
    _log.info(f"{work} by CPUs, some {on_cpus:.0f} s; a GPU would take {on_gpus:.0f} s")
    return NO_GPUS


def _nodes_with_gpus() -> tuple[tuple[str, str], ...]:
    """The ids and addresses of the nodes that have GPUs."""
    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0) >= 1]
    return tuple(sorted((node["NodeID"], node["NodeManagerAddress"]) for node in alive))


@functools.lru_cache(maxsize=1)  # the jobs of one process, one after the other, ask once
def _begun(nodes: tuple[tuple[str, str], ...]) -> "dict[ray.ObjectRef[str | None], tuple[str, str]]":
    """Start the trial of a GPU of each node, in the process that the first stage will use."""
    return {WORKERS.start(_trial, node=node): (node, address) for node, address in nodes}


@functools.lru_cache(maxsize=1)
def _trouble(nodes: tuple[tuple[str, str], ...]) -> str | None:
    """Return what is wrong with the GPUs of these nodes; None if nothing is, or it could not be tried in time."""
    asked = _begun(nodes)
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=_PATIENCE_SECONDS)
    for one in late:
        WORKERS.ended(one, is_alive=False)
        _log.warning(f"the GPUs of the node {asked[one][1]} were not tried: none was free")
    alive = {node for node, _ in _nodes_with_gpus()}  # a node that is lost meanwhile is no fault of its GPUs
    found = []
    for one in done:
        try:
            trouble = ray.get(one)
        except ray.exceptions.RayError as error:
            trouble = f"the trial ended with {type(error).__name__}"
        WORKERS.ended(one, is_alive=trouble is None)
        node, address = asked[one]
        if trouble is not None and node in alive:
            found.append(f"torch cannot use the GPUs of the node {address}: {trouble}")
    return next(iter(found), None)


def _trial() -> str | None:  # Ray takes no cached function for a task
    return system.trouble_with(system.GPU)


@functools.lru_cache(maxsize=1)
def _warn(said: str) -> None:
    """Say it once."""
    _log.warning(said)


def are_given() -> bool:
    """Whether this is a task, or an actor, that asked Ray for a GPU and so has one."""
    return ray.is_initialized() and bool(ray.get_runtime_context().get_accelerator_ids().get("GPU"))


def hide_unless_given() -> None:
    """In a task: no library finds a GPU unless the task asked for one. Ray never gives such a process a GPU later."""
    if not are_given():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
