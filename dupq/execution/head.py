"""Noticing that the cluster's head is lost.

Ray itself would try for a minute, and then end the process without a line.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from types import FrameType

import ray

from dupq.errors import ClusterError

_BETWEEN_SECONDS = 5
_PATIENCE_SECONDS = 30  # without an answer; Ray ends the process after 60
_UNWINDING_SECONDS = 10  # that the job has to end after the error was raised in it; Ray's threads may keep it from that


def failure_at(address: str, timeout: float) -> OSError | None:
    """What went wrong in connecting to `address` (host:port) within `timeout` seconds; None if something listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()
    except OSError as error:
        return error
    return None


def watch() -> None:
    """From now on raise ClusterError in the main thread if the head of the cluster that was joined is lost."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread can be told
    signal.signal(signal.SIGUSR1, _raise_lost)
    address = ray.get_runtime_context().gcs_address
    threading.Thread(target=_watch, args=(address,), name="head-watch", daemon=True).start()


def _watch(address: str) -> None:
    answered = time.monotonic()
    while time.monotonic() - answered < _PATIENCE_SECONDS:
        time.sleep(_BETWEEN_SECONDS)
        if not _is_joined(address):
            return
        if failure_at(address, _BETWEEN_SECONDS) is None:
            answered = time.monotonic()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
    time.sleep(_UNWINDING_SECONDS)
    print(f"error: {_lost()}", file=sys.stderr, flush=True)
    os._exit(ClusterError.EXIT_CODE)


def _is_joined(address: str) -> bool:
    with contextlib.suppress(Exception):  # what Ray raises where it was shut down meanwhile has no common class
        return bool(ray.is_initialized() and ray.get_runtime_context().gcs_address == address)
    return False


def _raise_lost(number: int, frame: FrameType | None) -> None:
    raise _lost()


def _lost() -> ClusterError:
    return ClusterError(
        f"the head of the Ray cluster has not answered for {_PATIENCE_SECONDS} s; run the same command again to go on"
    )
