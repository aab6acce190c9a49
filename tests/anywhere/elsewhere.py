"""Commands in other surroundings: as a user who may write nowhere, on a read-only file system, without /dev/shm."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

NOBODY = 65534
WITHOUT_SHM = """
D=$(mktemp -d); mount -t tmpfs -o mode=755 tmpfs $D
for name in null zero full random urandom; do touch $D/$name; mount --bind /dev/$name $D/$name; done
ln -s /proc/self/fd $D/fd
mount --move $D /dev
"""
SMALL_SHM = "mount -t tmpfs -o size=64m tmpfs /dev/shm\n"
CGROUPS = Path("/sys/fs/cgroup/memory")  # version 1


def in_cgroup(name: str, limit: int) -> str:
    """The commands that put the process into a control group with so many bytes, of which it sees the limit."""
    group = CGROUPS / name
    return (
        f"mkdir {group}; echo {limit} > {group}/memory.limit_in_bytes; echo $$ > {group}/cgroup.procs\n"
        f"mount --bind {group} {CGROUPS}\n"
    )


def read_only(folder: Path) -> str:
    """The commands that make a folder read-only."""
    return f"mount --bind {folder} {folder}; mount -o remount,ro,bind {folder}\n"


def read_only_root(package: Path, writable: Path) -> str:
    """The commands that make all read-only but `writable`, as /mnt, and /tmp, empty but for a `package` that is there.

    As `docker run --read-only --tmpfs /tmp` does.
    """
    return (
        f"mount --bind {writable} /mnt; mount --bind {package} /media; mount -o remount,ro,bind /\n"
        f"mount -t tmpfs -o mode=1777 tmpfs /tmp; mkdir -p {package}; mount --bind /media {package}\n"
        f"mount -o remount,ro,bind {package}\n"
    )


@cache
def why_not() -> str | None:
    """Why surroundings cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "other surroundings need root"
    if not (shutil.which("unshare") and shutil.which("setpriv")):
        return "unshare or setpriv is not installed (util-linux)"
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    return "mounts of a process's own are not allowed here" if tried.returncode else None


def run_as(
    user: int, set_up: str, command: Sequence[str], environment: Mapping[str, str], cpus: Sequence[int] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run a command as `user` (an id), with this environment and no more, after `set_up` (shell, as root).

    The user may read everything, so that it is no matter where this interpreter is.
    """
    changed = [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
    reads_all = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"] if user else []
    pinned = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
    variables = [f"{name}={value}" for name, value in {"PATH": "/usr/bin:/bin", **environment}.items()]
    inner = [*pinned, "setpriv", *changed, *reads_all, "env", "-i", *variables, *command]
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", f'set -e\n{set_up}exec "$@"', "sh", *inner],
        capture_output=True,
        text=True,
        timeout=600,
    )
