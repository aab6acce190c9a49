"""The nodes of a cluster: whether all run the same code, and which tasks wait for S3."""

import contextlib
import hashlib
import json
import logging
import socket
import threading
import time
import uuid
from functools import cache
from pathlib import Path

import ray
from ray.experimental import internal_kv

import dupq
from dupq.errors import ClusterError
from dupq.runs.writer import versions

_log = logging.getLogger(__name__)
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
