"""Processes that each keep one GPU for a job.

Ray gives a process of tasks another GPU from task to task, but CUDA stays on the one that the process saw first: two
tasks would share a GPU while another is idle. So what needs a GPU runs in actors, which keep theirs. To start Python,
torch and CUDA takes some 8 seconds, so an actor is kept from stage to stage, until the job ends or something else needs
its GPU: the actors of Ray Data, the workers of Ray Train. It holds no CPU, as tasks on CPUs run between its stages.
"""

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import ray

from dupq.errors import DupqError
from dupq.execution import cluster

Result = TypeVar("Result")


class _Worker:
    """The actor's code."""

    def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Return what `function` returns. Raises DupqError if the GPU has too little memory."""
        try:
            return function(*arguments)
        except RuntimeError as error:
            if _is_memory(error):
                raise DupqError(_too_little(error)) from error
            raise
        finally:
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # for the next stage, whose tensors have other sizes


def _is_memory(error: RuntimeError) -> bool:
    torch = sys.modules.get("torch")  # not imported for an error of something else
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def _too_little(error: RuntimeError) -> str:
    said = str(error).partition("\n")[0]
    return (
        f"a GPU of the node {socket.gethostname()} has too little memory ({said}); use one that nothing else uses, set "
        "encode.batch_size lower, or run with --gpus none"
    )


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
