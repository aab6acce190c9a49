"""Noticing that the cluster's head is lost, or a process of the Ray that was started here.

Ray itself would try for minutes, and then end the process without a line. Imports no Ray: the command line imports this
before any job.
"""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType

from dupq.errors import HeadLostError
from dupq.execution import ends

_BETWEEN_SECONDS = 5
_PATIENCE_SECONDS = 30  # without an answer; Ray ends the process later
_UNWINDING_SECONDS = 10  # that the job has to end after the error was raised in it; Ray's threads may keep it from that
# How long Ray lets a process live whose head is lost: so long that the job can still tell of its end. Ray reads it when
# it is imported, which the command line does after this module.
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "240")
_log = logging.getLogger(__name__)

lost = threading.Event()  # the head is; then Python's own end of the process would wait for Ray
job_ended = threading.Event()  # set by the main program, which then tells of the job's end and ends the process itself


def failure_at(address: str, timeout: float) -> OSError | None:
    """What went wrong in connecting to `address` (host:port) within `timeout` seconds; None if something listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()
    except OSError as error:
        return error
    return None


class _Stuck:
    dead: str | None = None  # a process of the Ray that was started here
    tell: Callable[[], None] = staticmethod(lambda: None)


_stuck = _Stuck()


def if_stuck(tell: Callable[[], None]) -> None:
    """Call this in the main program's stead, before the process ends, where its thread hears nothing any more."""
    _stuck.tell = tell


def watch() -> None:
    """From now on raise HeadLostError in the main thread if the head of the cluster that was joined is lost."""
    import ray

    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread can be told
    signal.signal(signal.SIGUSR1, _raise_lost)
    address = ray.get_runtime_context().gcs_address
    threading.Thread(target=_watch, args=(address,), name="head-watch", daemon=True).start()


def _watch(address: str) -> None:
    answered = time.monotonic()
    while time.monotonic() - answered < _PATIENCE_SECONDS and _stuck.dead is None:
        time.sleep(_BETWEEN_SECONDS)
        if not _is_joined(address):
            return
        _stuck.dead = _dead_here()
        if failure_at(address, _BETWEEN_SECONDS) is None:
            answered = time.monotonic()
    lost.set()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    if not job_ended.wait(_UNWINDING_SECONDS):
        _end_stuck()


def _end_stuck() -> None:
    """End the process, whose main thread waits for Ray and will not hear of anything."""
    try:
        _log.error(str(_error()))
        _stuck.tell()
    finally:
        ends.leave(HeadLostError.EXIT_CODE)


def _is_joined(address: str) -> bool:
    import ray

    with contextlib.suppress(Exception):  # what Ray raises where it was shut down meanwhile has no common class
        return bool(ray.is_initialized() and ray.get_runtime_context().gcs_address == address)
    return False


def _dead_here() -> str | None:
    import ray

    node = ray._private.worker._global_node
    return next((name for name, _ in node.dead_processes()), None) if node is not None else None


def _raise_lost(number: int, frame: FrameType | None) -> None:
    if not job_ended.is_set():
        raise _error()


def _error() -> HeadLostError:
    what = f"the head of the Ray cluster has not answered for {_PATIENCE_SECONDS} s"
    if _stuck.dead is not None:
        what = f"Ray's {_stuck.dead} has ended: it was killed, or crashed"
    return HeadLostError(f"{what}; run the same command again to go on")
