"""Connecting to a Ray cluster, or starting Ray on this machine; the cluster's resources."""

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Iterator
from typing import Any

import ray

from dupq.errors import DupqError, SettingError

_PATIENCE_SECONDS = 10
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
_OBJECT_STORE_BYTES = 300_000_000  # work is exchanged as files; objects are small


def connect(address: str | None = None) -> None:
    """Join the Ray cluster at `address`, else at RAY_ADDRESS (`auto`: the one on this machine), else start one here.

    If an address is given and no cluster is there, that is an error: no other one is started silently.
    """
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # else Ray writes a token into the home folder
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # failures are raised as well
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default, without its warning
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    wanted = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_reachable(wanted)
    try:
        with _no_stderr():
            _init(wanted)
    except ConnectionError as error:
        raise DupqError(
            f"no Ray cluster at {wanted} ({error}); start one, or leave out --ray and RAY_ADDRESS to use this machine"
        ) from error
    except ValueError as error:
        raise SettingError(f"--ray {wanted}: {error}") from error
    _check_nodes()


def _check_reachable(address: str) -> None:
    """Raise DupqError if nothing listens at `address`; Ray itself would try for minutes."""
    host, separator, port = address.rpartition(":")
    if not separator or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS).close()
    except OSError as error:
        raise DupqError(
            f"no Ray cluster at {address} ({error}); start one, or leave out --ray and RAY_ADDRESS to use this machine"
        ) from error


def _init(address: str) -> None:
    if address == "local":
        ray.init(address="local", include_dashboard=False, object_store_memory=_OBJECT_STORE_BYTES, **_QUIET)
    else:
        ray.init(address=address, **_QUIET)


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Silence file descriptor 2: Ray's core announces its log level there, and has no setting against it."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _check_nodes() -> None:
    from dupq import __version__

    if "CPU" not in ray.cluster_resources():
        return
    try:
        found = ray.get(ray.remote(_worker_version).options(num_cpus=1).remote())
    except (ray.exceptions.RayTaskError, ModuleNotFoundError) as error:
        raise DupqError(
            f"dupq is not installed on the nodes of the Ray cluster ({error.__class__.__name__}); run `ray up`"
        ) from error
    if found != __version__:
        raise DupqError(f"the nodes have dupq {found}, this script {__version__}; refresh them with `ray up`")


def _worker_version() -> str:
    import dupq

    return dupq.__version__


def gpus() -> int:
    """The number of GPUs of the cluster."""
    return int(ray.cluster_resources().get("GPU", 0))


def cpus() -> int:
    """The number of CPUs of the cluster."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def memory() -> int:
    """The memory of the cluster for tasks, in bytes."""
    return int(ray.cluster_resources().get("memory", 1 << 30))
