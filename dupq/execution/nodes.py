"""The machines of a cluster as the driver sees them: whether the head is lost, whether all nodes run the same code,
and which tasks wait for S3.
"""

import contextlib
import hashlib
import json
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType

import ray
from ray.experimental import internal_kv

import dupq
from dupq.errors import ClusterError, HeadLostError
from dupq.execution import ends
from dupq.runs.writer import versions

# Noticing that the cluster's head is lost, or a process of the Ray that was started here.
#
# Ray itself would try for minutes, and then end the process without a line.

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


def watch_head() -> None:
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


# Telling the driver that tasks wait for S3: their own lines go to files of Ray's that nobody reads.
#
# A process that has waited for a while says so once a minute (dupq/patience.py). In a task the line is also kept at the
# cluster's head, under a key of the process. Once a minute a thread of the driver asks for what there is, and logs one
# line for all: three small requests to the head, whatever the number of tasks.

_SECONDS = 60  # between two lines, as each process tells once a minute
_NAMESPACE = "dupq"


class _ToHead(logging.Handler):
    """Keeps the last line of this process at the head."""

    def __init__(self) -> None:
        super().__init__()
        self._process = uuid.uuid4().hex

    def emit(self, record: logging.LogRecord) -> None:
        waited = getattr(record, "waited", None)
        if waited is None:
            return
        told = json.dumps({"message": record.getMessage(), "waited": waited})
        with contextlib.suppress(Exception):  # whatever it is, the work matters more
            internal_kv._internal_kv_put(f"{_ours()}{self._process}", told, namespace=_NAMESPACE)


_handlers: list[_ToHead] = []


def tell_driver() -> None:
    """In a task: let the driver know from now on when this process waits for S3; once is enough."""
    if not _handlers:
        _handlers.append(_ToHead())
        logging.getLogger("dupq.patience").addHandler(_handlers[0])


def watch_waits() -> None:
    """In the driver: say from now on when tasks wait for S3, until Ray is left."""
    threading.Thread(target=_waits_watch, args=(_ours(),), name="waits-watch", daemon=True).start()


def _waits_watch(jobs: str) -> None:
    with contextlib.suppress(Exception):  # a head that is lost, or a Ray that was left: others say so
        while True:
            time.sleep(_SECONDS)
            if not ray.is_initialized() or _ours() != jobs:
                return
            show()


def show() -> None:
    """Log a line if tasks of this job have waited for S3 since the last call."""
    keys = internal_kv._internal_kv_list(_ours(), namespace=_NAMESPACE)
    if not keys:
        return
    told = json.loads(internal_kv._internal_kv_get(min(keys), namespace=_NAMESPACE) or b"null")
    internal_kv._internal_kv_del(_ours(), del_by_prefix=True, namespace=_NAMESPACE)
    if told is not None:
        _log.warning(
            f"{len(keys)} process(es) of tasks wait for S3, one of them for {told['waited']:.0f} s: {told['message']}",
            extra={"is_progress": True},
        )


def _ours() -> str:
    """How the keys of this job begin."""
    return f"waits/{ray.get_runtime_context().get_job_id()}/"
