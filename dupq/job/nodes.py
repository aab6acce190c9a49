"""The machines of a cluster as the driver sees them: whether the head is lost, and whether all run the same code."""

import hashlib
import importlib.metadata
import platform
import socket
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import ray

import dupq
from dupq.errors import ClusterError
from dupq.job import ends

_BETWEEN_SECONDS = 5
_PATIENCE_SECONDS = 30  # without an answer of the head; Ray would end the process later, and without a line


def failure_at(address: str, timeout: float) -> OSError | None:
    """What went wrong in connecting to `address` (host:port) within `timeout` seconds; None if something listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()
    except OSError as error:
        return error
    return None


def watch_ray() -> None:
    """From now on end the job with one line if the cluster's head is lost, or a process of the Ray started here."""
    address = ray.get_runtime_context().gcs_address
    node: Any = ray._private.worker._global_node
    threading.Thread(target=_watch, args=(address, node), name="ray-watch", daemon=True).start()


def _watch(address: str, node: Any) -> None:
    answered = time.monotonic()
    trouble = None
    while trouble is None:
        time.sleep(_BETWEEN_SECONDS)
        dead = node.dead_processes()
        if not ray.is_initialized() or ray._private.worker._global_node is not node:
            return  # the job has left this Ray, whose processes may have ended for that
        for name, _ in dead:
            trouble = f"Ray's {name} has ended: it was killed, or crashed"
        if failure_at(address, _BETWEEN_SECONDS) is None:
            answered = time.monotonic()
        elif time.monotonic() - answered >= _PATIENCE_SECONDS:
            trouble = trouble or f"the head of the Ray cluster has not answered for {_PATIENCE_SECONDS} s"
    ends.fail(f"{trouble}; run the same command again to go on", ClusterError.EXIT_CODE)


_LIBRARIES = (
    *("ray", "torch", "pyarrow", "numpy", "gensim", "datasketch", "numba", "boto3", "scipy", "selectolax"),
    *("icu4py", "pystemmer", "simplemma", "textblob"),
)
_SOURCE = (".py", ".json", ".toml")  # code, presets, prior and grammar

Build = dict[str, str]


def build() -> Build:
    """What gives this process's answers: a hash of dupq's source, and the versions of Python and the libraries.

    Builds of torch for CPUs and for GPUs count as the same version, as nodes of both kinds work together.
    """
    return _build()


@cache  # Ray takes no cached function for a task
def _build() -> Build:
    public = {name: version.partition("+")[0] for name, version in versions().items()}
    return {"dupq": f"{dupq.__version__} (source {_source_hash(Path(dupq.__file__).parent)})", **public}


def versions() -> dict[str, str]:
    """Python's and the libraries' versions."""
    found = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), "platform": sys.platform, **found}


def _source_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCE):
        digest.update(str(file.relative_to(folder)).encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def check_same(job: Build) -> None:
    """Raise ClusterError if this process's build is not the one of the job."""
    check_node(socket.gethostname(), build(), job)


def check_node(node: str, found: Build, job: Build) -> None:
    """Raise ClusterError if the build `found` on a node is not the one of the job; says which node differs in what."""
    differing = [
        f"{name} {found.get(name, 'not installed')} there and {job.get(name, 'not installed')} here"
        for name in sorted(job.keys() | found.keys())
        if found.get(name) != job.get(name)
    ]
    if differing:
        raise ClusterError(f"the node {node} differs from this script: {', '.join(differing)}; refresh with `ray up`")
