"""Processes that each keep one GPU for all tasks of a step.

Ray gives a process of tasks another GPU from task to task, but CUDA stays on the one that the process saw first: two
tasks would share a GPU while another is idle. So what needs a GPU runs in actors, which keep theirs, with CUDA started
and what tasks keep for the next one. They end with the step, and their memory on the GPU with them.
"""

import socket
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import ray

from dupq.errors import DupqError

Result = TypeVar("Result")


class _Worker:
    """The actor's code."""

    def call(self, function: Callable[..., Result], *arguments: object) -> Result:
        """What `function` gives. Raises DupqError if the GPU has too little memory."""
        try:
            return function(*arguments)
        except RuntimeError as error:
            if _is_memory(error):
                raise DupqError(_too_little(error)) from error
            raise


def _is_memory(error: RuntimeError) -> bool:
    torch = sys.modules.get("torch")  # not imported for an error of something else
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def _too_little(error: RuntimeError) -> str:
    said = str(error).partition("\n")[0]
    return (
        f"a GPU of the node {socket.gethostname()} has too little memory ({said}); use one that nothing else uses, set "
        "encode.batch_size lower, or run with --gpus none"
    )


class _Held(NamedTuple):
    """An actor, and its CPUs."""

    actor: Any
    cpus: float


class GpuWorkers:
    """The processes of one step, made when they are wanted, until `close`."""

    def __init__(self) -> None:
        """At first there are none."""
        self._idle: list[_Held] = []
        self._busy: dict[ray.ObjectRef[Any], _Held] = {}

    def start(self, cpus: float, function: Callable[..., Result], *arguments: object) -> "ray.ObjectRef[Result]":
        """Call `function` in a process with a GPU and so many CPUs: an idle one, else a new one."""
        held = self._idle.pop() if self._idle else None
        if held is not None and held.cpus != cpus:
            ray.kill(held.actor)
            held = None
        if held is None:
            held = _Held(ray.remote(_Worker).options(num_cpus=cpus, num_gpus=1).remote(), cpus)
        started = held.actor.call.remote(function, *arguments)
        self._busy[started] = held
        return started

    def ended(self, call: "ray.ObjectRef[Result]", is_alive: bool = True) -> None:
        """A call is over: its process is idle now, or lost. Nothing for a call that was not started here."""
        held = self._busy.pop(call, None)
        if held is not None and is_alive:
            self._idle.append(held)
        elif held is not None:
            ray.kill(held.actor)

    def close(self) -> None:
        """End all processes, whatever they do."""
        for held in (*self._idle, *self._busy.values()):
            ray.kill(held.actor)
