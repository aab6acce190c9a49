"""A machine for `ray up`, `ray submit` and `ray down`, made of this one.

The launcher knows port 22 only and keeps its state in /tmp/ray, and both `ray up` and `ray down` end every
Ray process that they see. So the tests run launcher and head in Linux namespaces of their own: own processes,
own loopback (ports 22 and 6379 are free, nothing outside is reached), own /tmp/ray and ~/.ssh. Other Rays of
this machine, the test session's too, go on. When the first process in there (sshd) dies, so do all others.
"""

import contextlib
import hashlib
import os
import pwd
import re
import secrets
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import swift

CLUSTER_FILE = "cluster-local.yaml"

NAMESPACES = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
PROGRAMS = {"sshd": "openssh-server", "ssh": "openssh-client", "rsync": "rsync", "ip": "iproute2"}
NOT_COPIED = [".git", ".venv", "out", "__pycache__", ".*_cache", ".hypothesis"]
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"  # of sshd and ip

# $1 is the scratch folder, $2 the home in which ssh looks for ~/.ssh, whatever HOME says.
BOOT = """
ip link set lo up
mkdir -p /run/sshd /tmp/ray "$2/.ssh"
mount --bind "$1/launcher/.ssh" "$2/.ssh"
mount --bind "$1/ray" /tmp/ray
exec "$(command -v sshd)" -D -e -f "$1/sshd_config"
"""

SSHD_CONFIG = """
ListenAddress 127.0.0.2
HostKey {scratch}/host_key
AuthorizedKeysFile {scratch}/authorized_keys
PasswordAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
MaxStartups 100
SetEnv HOME={scratch}/head
"""

BASH_PROFILE = """
export PATH=~/environment/bin:$PATH
export RAY_ADDRESS=auto RAY_AUTH_MODE=token RAY_idle_worker_killing_time_threshold_ms=20000 OMP_NUM_THREADS=1
export {settings}
"""


@dataclass(frozen=True)
class Launcher:
    """Somebody in front of a checkout, with the machine behind the ssh key."""

    checkout: Path  # where `ray` is called
    head: Path  # the home folder on the head
    enter: list[str]  # the words before a command that run it on the machine
    environment: dict[str, str]

    def ray(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run `ray`; the output is both streams in one."""
        ray = Path(sys.executable).with_name("ray")
        return subprocess.run(
            [*self.enter, "env", f"--chdir={self.checkout}", ray, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
        )

    def up(self) -> None:
        """`ray up`."""
        done = self.ray("up", "-y", CLUSTER_FILE)
        assert done.returncode == 0, done.stdout

    def take_kernels(self, repository: Path) -> None:
        """Give the head what numba has compiled here; by itself it would compile for minutes. Other code is unused."""
        (installed,) = self.head.glob("environment/lib/python*/site-packages/dupq")
        for kernel in (repository / "dupq").rglob("__pycache__/*-dupq-*.nb[ic]"):
            place = installed / kernel.relative_to(repository / "dupq")
            place.parent.mkdir(exist_ok=True)
            shutil.copy(kernel, place)

    def submit(self, script: str | Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """`ray submit` a script with its arguments; what it prints without colours, a drawn line as one of its own."""
        done = self.ray("submit", CLUSTER_FILE, script, "--", *arguments)
        done.stdout = re.sub(r"\x1b\[[0-9;]*[mK]", "", done.stdout)  # a carriage return is a new line
        return done

    def python(self, code: str, *arguments: str) -> str:
        """What `code` prints that is run on the head, as its jobs are."""
        words = [*self.enter, "env", f"--chdir={self.checkout}", sys.executable, "-c", code, *arguments]
        done = subprocess.run(words, env=self.environment | swift.SETTINGS, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def down(self) -> None:
        """`ray down`."""
        done = self.ray("down", "-y", CLUSTER_FILE)
        assert done.returncode == 0, done.stdout


def missing() -> list[str]:
    """What this machine lacks to make another one of it."""
    lacking = [f"{name} (package {package})" for name, package in PROGRAMS.items() if not _found(name)]
    if os.geteuid() != 0:
        return [*lacking, "root"]
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode != 0:
        return [*lacking, "namespaces (a container without --privileged has none)"]
    return lacking


def _found(program: str) -> bool:
    return shutil.which(program, path=PATH) is not None


@contextlib.contextmanager
def booted(repository: Path, scratch: Path) -> Iterator[Launcher]:
    """The machine, with sshd running and a copy of the repository; gone, with every process, afterwards."""
    _make_homes(scratch)
    checkout = shutil.copytree(repository, scratch / "checkout", ignore=shutil.ignore_patterns(*NOT_COPIED))
    user = f"dupq-{os.getpid()}"
    environment = os.environ | {
        "HOME": str(scratch / "launcher"),
        "TMPDIR": str(scratch),  # the launcher caches its configuration here
        "LOGNAME": user,  # and names its ssh sockets after this: two test sessions at once need two
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    log = scratch / "boot.log"
    with log.open("w") as stream:
        boot = subprocess.Popen(
            [*NAMESPACES, "sh", "-euc", BOOT, "boot", scratch, pwd.getpwuid(os.geteuid()).pw_dir],
            env=os.environ | {"PATH": PATH},
            stdout=stream,
            stderr=stream,
        )
    try:
        while "Server listening" not in log.read_text():
            assert boot.poll() is None, log.read_text()
            time.sleep(0.05)
        (first,) = psutil.Process(boot.pid).children()
        enter = ["nsenter", f"--target={first.pid}", "--all", "--"]
        yield Launcher(checkout, scratch / "head", enter, environment)
    finally:
        for process in psutil.Process(boot.pid).children():
            process.kill()  # the machine's first process, so the kernel ends all others before boot.wait() returns
        boot.wait()
        sockets = hashlib.sha256(user.encode()).hexdigest()[:10]
        shutil.rmtree(f"/tmp/ray_ssh_{sockets}", ignore_errors=True)


def _make_homes(scratch: Path) -> None:
    """Keys, sshd's configuration, and the home folders of the launcher and of the head."""
    for folder in ("launcher/.ssh", "head", "ray"):
        (scratch / folder).mkdir(parents=True)
    key = scratch / "launcher/.ssh/dupq_local"
    for path in (key, scratch / "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    shutil.copy(f"{key}.pub", scratch / "authorized_keys")
    (scratch / "sshd_config").write_text(SSHD_CONFIG.format(scratch=scratch))
    settings = " ".join(f"{name}={value}" for name, value in swift.SETTINGS.items())
    (scratch / "head/.bash_profile").write_text(BASH_PROFILE.format(settings=settings))
    (scratch / "head/.bashrc").touch()  # the launcher sources it
    (scratch / "launcher/.ray").mkdir()
    (scratch / "launcher/.ray/auth_token").write_text(secrets.token_hex(32))
    _make_environment(scratch / "head/environment")


def _make_environment(folder: Path) -> None:
    """An environment with every package of this one but dupq, which `ray up` must install from its mount.

    The packages are borrowed through a .pth file. Python reads no .pth files in a folder that it finds this
    way, so the editable dupq of the checkout stays out; and pip changes nothing outside its environment.
    """
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages/borrowed.pth").write_text(sysconfig.get_path("purelib"))
    for name, module in {"pip": "pip", "ray": "ray.scripts.scripts"}.items():
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {folder}/bin/python -m {module} "$@"\n')
        command.chmod(0o755)
