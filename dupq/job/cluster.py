"""The Ray cluster of a job: joining or starting it, its resources, the loss of its head, and a check that all nodes run
the same code.
"""

import contextlib
import hashlib
import importlib.metadata
import logging
import os
import platform
import re
import secrets
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dupq
from dupq.errors import ClusterError, SettingError
from dupq.job import progress, supervisor
from dupq.local_files import can_write, own_folder
from dupq.system import lazy

if TYPE_CHECKING:
    import ray
else:
    ray = lazy("ray")  # with --ray none it is not needed

_log = logging.getLogger(__name__)
_CONNECT_SECONDS = 10
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
_LEAST_STORE_BYTES = 300_000_000
_STORE_BYTES_PER_CPU = 400_000_000  # for shards in Ray Data, which uses half of the store for blocks
_STORE_SHARE = 0.3  # of the memory, and of the free space in /dev/shm, at most
_LONGEST_SESSION_FOLDER = 36  # bytes: the path of a socket has at most 103 (Linux: 107), and Ray adds up to 67
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
_ADDRESS = re.compile(r"[\w.-]+:\d{1,5}|\[[\w.:]+\]:\d{1,5}", re.ASCII)
_ENVIRONMENT = {
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # failures are raised as well
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # otherwise Ray prints those of all other tasks after the first
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default, without its warning
    "RAY_task_oom_retries": "3",  # of tasks that Ray itself restarts; its default is unlimited
}


_here: int | None = None  # the CPUs of this process if tasks run in it; None: tasks run on Ray
_BETWEEN_SECONDS = 5
_GROUPS = Path("/sys/fs/cgroup")
_PATIENCE_SECONDS = 30  # without an answer of the head; Ray ends the process later, without a line
_LIBRARIES = (
    *("ray", "torch", "pyarrow", "numpy", "gensim", "datasketch", "numba", "boto3", "scipy", "selectolax"),
    *("bm25s", "icu4py", "pystemmer", "regex", "simplemma", "textblob"),
)
_SOURCE = (".py", ".json", ".toml")  # code, presets, prior and grammar

Build = dict[str, str]


def is_in_process() -> bool:
    """Return whether tasks run in this process."""
    return _here is not None


def connect(address: str | None = None) -> None:
    """Join the Ray cluster at `address`, else at RAY_ADDRESS (`auto`: the one on this machine), else start one here.

    `none` runs tasks in this process, which for a small archive is faster than starting Ray. If an address is given, no
    other cluster is started silently. If the head is lost later, the process ends. Raises SettingError for an invalid
    address, ClusterError if no cluster is there.
    """
    global _here
    if sys.modules.get("ray") and ray.is_initialized():
        return
    logging.getLogger("ray").setLevel(logging.ERROR)  # it warns of a container's limit of CPUs
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    if target == "none":
        _here = _cpus_here()
        return
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    supervisor.keep_handlers()
    if os.path.expanduser("~") == "~":  # a user without a name, as in containers; some libraries need a home
        os.environ["HOME"] = tempfile.gettempdir()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    source = "--ray" if address else "RAY_ADDRESS"
    if target not in ("auto", "local"):
        if not _ADDRESS.fullmatch(target):  # Ray itself prints several lines, or uses another address
            raise SettingError(
                f"{source} {target!r}: no address of a Ray cluster; 'auto', 'local', or HOST:PORT of its head, "
                "such as 10.0.0.1:6379, expected (a ray:// or http:// address is not that of the head)"
            )
        failure = failure_at(target, _CONNECT_SECONDS)
        if failure is not None:  # Ray itself would try for minutes
            raise ClusterError(_no_cluster(target, failure))
    try:
        with _no_stderr():
            _init(target)
    except ConnectionError as error:
        raise ClusterError(_no_cluster(target, error)) from error
    except ValueError as error:
        raise SettingError(f"{source} {target}: {' '.join(str(error).split())}") from error
    except RuntimeError as error:  # the cluster was started with another Ray or Python
        raise ClusterError(f"{source} {target}: {' '.join(str(error).split())}") from error
    except Exception as error:
        if type(error) is not Exception:  # Ray raises a plain one if a node does not start in time
            raise
        raise ClusterError(f"Ray did not start ({error}); is this machine overloaded?") from error
    ray._private.worker._worker_logs_enabled = False  # no last lines of a lost raylet: that is raised as well
    watched = ray.get_runtime_context().gcs_address, ray._private.worker._global_node
    threading.Thread(target=_watch, args=watched, name="ray-watch", daemon=True).start()


def _no_cluster(address: str, error: Exception) -> str:
    if isinstance(error.__cause__, ray.exceptions.AuthenticationError):
        return (
            f"the Ray cluster at {address} wants another token; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to the one "
            "that it was started with"
        )
    return f"no Ray cluster at {address} ({error}); start one, or leave out --ray and RAY_ADDRESS to use this machine"


def _init(address: str) -> None:
    if address != "local":
        ray.init(address=address, **_QUIET)
        return
    from unittest.mock import patch  # a slow import, which tasks need not have

    from ray._private import parameter, ray_constants, services

    # Given a token, Ray requires it, unless RAY_AUTH_MODE says otherwise, and writes none into the home folder.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # By default Ray takes an external address, so that other nodes could join, and starts a scaler of clusters, a
    # server for the dashboard, and what sends the workers' logs to a driver that does not want them: a second of a CPU
    # and 140 MB for each start.
    lean: dict[str, Any] = {"no_monitor": True, "include_log_monitor": False}
    with (
        patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False),
        patch.object(parameter, "RayParams", partial(parameter.RayParams, **lean)),
        patch.object(services, "start_api_server", lambda *_, **__: (None, None)),
    ):
        ray.init(
            address="local",
            num_cpus=_cpus_here(),
            include_dashboard=False,
            object_store_memory=_object_store_bytes(),
            _plasma_directory=None if os.path.isdir("/dev/shm") or sys.platform != "linux" else tempfile.gettempdir(),
            _temp_dir=_session_folder(),
            _node_ip_address="127.0.0.1",
            **_QUIET,
        )


def _session_folder() -> str | None:
    """Return the folder for Ray's sockets, logs and spilled blocks; None for Ray's default, RAY_TMPDIR or TMPDIR.

    The default may be too long for the path of a socket. Raises ClusterError if no other folder can be written.
    """
    from ray._common.utils import get_default_ray_temp_dir

    default = Path(get_default_ray_temp_dir())
    if len(os.fsencode(default.absolute())) <= _LONGEST_SESSION_FOLDER and can_write(default):
        return None
    own = own_folder(_SHORT_FOLDERS)
    if own is None:
        raise ClusterError(
            f"Ray cannot put its sockets into {default}, whose path is longer than {_LONGEST_SESSION_FOLDER} bytes or "
            f"cannot be written, nor into {', '.join(_SHORT_FOLDERS)}; set RAY_TMPDIR to a short path you can write"
        )
    return str(own / "ray")


def _cpus_here() -> int:
    """Return the number of CPUs that this process may use: a batch system gives a job only some."""
    quota, period = _limit("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
    count = max(1, int(quota / period)) if quota else os.cpu_count() or 1  # a limit may be half a CPU
    with contextlib.suppress(AttributeError):  # Linux only
        return min(count, len(os.sched_getaffinity(0)))
    return count


def _memory_here() -> int:
    """Return the bytes of memory of this machine, or of this container if it has a limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = _limit("memory.max", "memory/memory.limit_in_bytes")
    return min(total, limit) if limit else total


def _limit(name: str, *older: str) -> tuple[int, int]:
    """Return the limit of this container in a file of Linux's control groups, and its period; 0 without a limit.

    `older` are the files of version 1: the limit, and its period in one of its own.
    """
    for files in ([name], older):
        with contextlib.suppress(OSError, ValueError):  # elsewhere than on Linux; "max", or -1
            limit, *period = " ".join((_GROUPS / file).read_text() for file in files).split()
            return max(0, int(limit)), int(period[0]) if period else 1
    return 0, 1


def _object_store_bytes() -> int:
    """Return the size of Ray's object store, which holds the shards that are being encoded."""
    room = _memory_here()
    with contextlib.suppress(OSError):  # without /dev/shm, as on macOS
        room = min(room, shutil.disk_usage("/dev/shm").free)
    return max(_LEAST_STORE_BYTES, min(int(_STORE_SHARE * room), _STORE_BYTES_PER_CPU * _cpus_here()))


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Silence descriptor 2: Ray's core prints its log level there, and no setting prevents it."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def gpus() -> int:
    """Return the number of GPUs of the cluster."""
    return 0 if is_in_process() else int(ray.cluster_resources().get("GPU", 0))


def cpus() -> int:
    """Return the number of CPUs of the cluster."""
    return _here or max(1, int(ray.cluster_resources().get("CPU", 1)))


def memory() -> int:
    """Return the memory of the cluster for tasks, in bytes."""
    return _memory_here() if is_in_process() else int(ray.cluster_resources().get("memory", 1 << 30))


def widest(gpus: int = 0) -> float:
    """Return the CPUs of the largest node with at least `gpus` GPUs; 0 if there is none."""
    return max((node.get("CPU", 0.0) for node in _node_resources() if node.get("GPU", 0) >= gpus), default=0.0)


def check_fits(label: str, cpus: float, gpus: float, workers: int = 1) -> None:
    """Check that idle nodes can run `workers` side by side, each with these CPUs and GPUs.

    If not, raises ClusterError if no node may join the cluster, else logs what it waits for.
    """
    if is_in_process():
        if workers > 1:
            raise ClusterError(f"{label} needs {workers} processes side by side, and --ray none has one; leave it out")
        return
    nodes, needs = _node_resources(), {"CPU": cpus, "GPU": gpus}
    rooms = (min(int(node.get(name, 0) // need) for name, need in needs.items() if need) for node in nodes)
    if workers <= sum(rooms):
        return
    each = f"{cpus:g} CPU(s)" + (f" and {gpus:g} GPU(s)" if gpus else "")
    has = ", ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
    shortage = (
        f"{label} needs {f'{workers} times ' if workers > 1 else ''}{each}, each on one node; the nodes have {has}"
    )
    if not may_grow():
        raise ClusterError(f"{shortage}; ask for less, or join a larger cluster with --ray")
    progress.progress_line(_log, f"waiting for nodes: {shortage}")


def may_grow() -> bool:
    """Return whether nodes may join the cluster. None can if it is on loopback, as one started by `connect` is."""
    return not is_in_process() and not ray.get_runtime_context().gcs_address.startswith("127.0.0.1:")


def _node_resources() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def failure_at(address: str, timeout: float) -> Exception | None:
    """Return the error of a connection to `address` (host:port) within `timeout` seconds; None if it succeeds."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()
    except (OSError, OverflowError, UnicodeError) as error:  # a port above 65535, a host name that cannot be
        return error
    return None


def _watch(address: str, node: Any) -> None:
    """End the job with one line if the cluster's head is lost or a Ray process started here ends."""
    answered = time.monotonic()
    trouble = None
    while trouble is None:
        time.sleep(_BETWEEN_SECONDS)
        dead = node.dead_processes()
        if not ray.is_initialized() or ray._private.worker._global_node is not node:
            return  # the job has left this Ray, so its processes may have ended
        for name, _ in dead:
            trouble = f"Ray's {name} has ended: it was killed, or crashed"
        if failure_at(address, _BETWEEN_SECONDS) is None:
            answered = time.monotonic()
        elif time.monotonic() - answered >= _PATIENCE_SECONDS:
            trouble = trouble or f"the head of the Ray cluster has not answered for {_PATIENCE_SECONDS} s"
    supervisor.fail(f"{trouble}; run the same command again to go on", ClusterError.EXIT_CODE)


@cache
def build() -> Build:
    """Return what determines this process's answers: a hash of dupq's source, and the versions of Python and libraries.

    Builds of torch for CPUs and for GPUs count as the same version, as nodes of both kinds work together.
    """
    public = {name: version.partition("+")[0] for name, version in versions().items()}
    return {"dupq": f"{dupq.__version__} (source {_source_hash(Path(dupq.__file__).parent)})", **public}


def versions() -> dict[str, str]:
    """Return the versions of Python and the libraries."""
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), "platform": sys.platform, **libraries}


def _source_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCE):
        digest.update(str(file.relative_to(folder)).encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def check_node(node: str, its_build: Build, job: Build) -> None:
    """Raise ClusterError that names the differences if the build of a node is not the job's."""
    differing = [
        f"{name} {its_build.get(name, 'not installed')} there and {job.get(name, 'not installed')} here"
        for name in sorted(job.keys() | its_build.keys())
        if its_build.get(name) != job.get(name)
    ]
    if differing:
        raise ClusterError(f"the node {node} differs from this script: {', '.join(differing)}; refresh with `ray up`")
