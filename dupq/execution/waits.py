"""Telling the driver that tasks wait for S3: their own lines go to files of Ray's that nobody reads.

A process that has waited for a while says so once a minute (dupq/patience.py). In a task the line is also kept at
the cluster's head, under a key of the process. Once a minute a thread of the driver asks for what there is, and logs
one line for all: three small requests to the head, whatever the number of tasks.
"""

import contextlib
import json
import logging
import threading
import time
import uuid

import ray
from ray.experimental import internal_kv

_SECONDS = 60  # between two lines, as each process tells once a minute
_NAMESPACE = "dupq"
_log = logging.getLogger(__name__)


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


def watch() -> None:
    """In the driver: say from now on when tasks wait for S3, until Ray is left."""
    threading.Thread(target=_watch, args=(_ours(),), name="waits-watch", daemon=True).start()


def _watch(jobs: str) -> None:
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
