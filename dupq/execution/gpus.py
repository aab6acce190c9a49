"""How many GPUs a job may take, tried before any work, and hidden from tasks that asked for none."""

import functools
import logging
import os
from typing import NamedTuple

import ray

from dupq import devices
from dupq.errors import ClusterError
from dupq.execution import cluster
from dupq.runs import log

_PATIENCE_SECONDS = 120  # for the trial of a GPU: another job may have it
_log = logging.getLogger(__name__)


class Gpus(NamedTuple):
    """The GPUs that a job may take: so many, or None: those that the cluster has when they are wanted."""

    wanted: int | None

    def now(self) -> int:
        """How many there are for a stage that begins now; 0: it computes on CPUs."""
        return cluster.gpus() if self.wanted is None else self.wanted


NO_GPUS = Gpus(0)


def gpus_for(wanted: int | None) -> Gpus:
    """The GPUs of a job, before any work; `wanted` is what --gpus says, None: auto.

    Those that are there are tried. If torch cannot use one, `auto` goes on with CPUs and says so. Raises ClusterError
    if a number is wanted and they cannot be used, or are not there and no node may join the cluster.
    """
    if wanted == 0:
        return NO_GPUS
    there = cluster.gpus()
    if wanted is not None and wanted > there:
        _say_missing(wanted, there)
    trouble = _trouble(_nodes_with_gpus()) if there else None
    if trouble is None:
        return Gpus(wanted)
    if wanted is not None:
        raise ClusterError(f"--gpus {wanted}: {trouble}; mend its driver or torch, or run with --gpus none")
    _log.warning(f"all is computed on CPUs: {trouble}")
    return NO_GPUS


def _say_missing(wanted: int, there: int) -> None:
    said = f"--gpus {wanted}: the cluster has {there}"
    if not cluster.may_grow():
        raise ClusterError(f"{said}; ask for fewer, or join a larger cluster with --ray")
    log.progress_line(_log, f"{said} now; it is asked for more when they are needed")


def _nodes_with_gpus() -> tuple[tuple[str, str], ...]:
    """The ids and addresses of the nodes that have GPUs."""
    alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU", 0) >= 1]
    return tuple(sorted((node["NodeID"], node["NodeManagerAddress"]) for node in alive))


@functools.lru_cache(maxsize=1)  # the jobs of one process, one after the other, ask once
def _trouble(nodes: tuple[tuple[str, str], ...]) -> str | None:
    """What is wrong with the GPUs of these nodes; None if nothing is, or it could not be tried in time."""
    trial = ray.remote(max_calls=1)(_trial)  # its process would keep memory on the GPU
    asked = {
        trial.options(
            num_cpus=0, num_gpus=1, max_retries=0, scheduling_strategy=cluster.only_on(node)
        ).remote(): address
        for node, address in nodes
    }
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=_PATIENCE_SECONDS)
    for one in late:
        ray.cancel(one, force=True)
        _log.warning(f"the GPUs of the node {asked[one]} were not tried: none was free")
    for one in done:
        try:
            trouble = ray.get(one)
        except ray.exceptions.RayError as error:  # a node that is lost meanwhile is no fault of its GPUs
            trouble = None if _is_lost(error) else f"the trial ended with {type(error).__name__}"
        if trouble is not None:
            return f"torch cannot use the GPUs of the node {asked[one]}: {trouble}"
    return None


def _trial() -> str | None:  # Ray takes no cached function for a task
    return devices.trouble_with(devices.GPU)


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, ray.exceptions.NodeDiedError | ray.exceptions.TaskUnschedulableError)


def are_given() -> bool:
    """Whether this is a task, or an actor, that asked Ray for a GPU and so has one."""
    return ray.is_initialized() and bool(ray.get_runtime_context().get_accelerator_ids().get("GPU"))


def hide_unless_given() -> None:
    """In a task: no library finds a GPU unless the task asked for one. Ray never gives such a process a GPU later."""
    if not are_given():
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
