"""A real S3 server that checks signatures: one-replica OpenStack Swift with its S3 API, on loopback.

Swift's packages are in an environment of their own (`SWIFT`, else `.venv/swift`; .ci/run makes it), as they pin others
than dupq's; memcached, which its proxy needs, comes from the distribution.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PORT, MEMCACHED = 6080, 6085  # of a machine of its own (machine.py)
SETTINGS = {
    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}",
    "AWS_ACCESS_KEY_ID": "test:tester",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
}
_STORES = {"account": 6081, "container": 6082, "object": 6083}
_SWIFT = """
[swift-hash]
swift_hash_path_suffix = dupq
swift_hash_path_prefix = dupq
[storage-policy:0]
name = one
default = yes
[swift-constraints]
max_header_size = 32768
"""
_SERVER = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = root
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
log_level = WARNING
log_address = /dev/null
"""
_STORE = """
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
_PROXY = """
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats bulk s3api tempauth copy slo dlo versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
dns_compliant_bucket_names = yes
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached}
"""
_PLAIN = ("catch_errors", "gatekeeper", "listing_formats", "bulk", "copy", "slo", "dlo", "versioned_writes")


def environment(repository: Path) -> Path:
    """Where Swift is installed."""
    return Path(os.environ.get("SWIFT", repository / ".venv/swift"))


def missing(repository: Path) -> list[str]:
    """What this machine lacks to run it."""
    proxy = environment(repository) / "bin/swift-proxy-server"
    return [
        *([] if shutil.which("memcached") else ["memcached (package memcached)"]),
        *([] if proxy.exists() else [f"{proxy} (pip install swift python-memcached)"]),
    ]


def has_attributes(folder: Path) -> bool:
    """Whether files in `folder` may have extended attributes, in which Swift keeps what it knows of an object."""
    try:
        os.setxattr(folder, "user.swift", b"1")
    except OSError:
        return False
    return True


@contextlib.contextmanager
def served(repository: Path, folder: Path, enter: Sequence[str]) -> Iterator[None]:
    """The server, ready, where the words `enter` before a command run it; gone afterwards. `folder` is its own."""
    binaries = environment(repository) / "bin"
    (folder / "devices/one").mkdir(parents=True)
    (folder / "swift.conf").write_text(_SWIFT)
    for name, port in _STORES.items():
        text = _SERVER.format(port=port, folder=folder) + _STORE.format(name=name)
        (folder / f"{name}.conf").write_text(text)
        builder = [binaries / "swift-ring-builder", folder / f"{name}.builder"]
        for words in (["create", "6", "1", "0"], ["add", f"r1z1-127.0.0.1:{port}/one", "1"], ["rebalance"]):
            subprocess.run([*builder, *words], check=True, stdout=subprocess.DEVNULL)
    plain = "".join(f"[filter:{name}]\nuse = egg:swift#{name}\n" for name in _PLAIN)
    proxy = _SERVER.format(port=PORT, folder=folder) + _PROXY.format(memcached=MEMCACHED) + plain
    (folder / "proxy.conf").write_text(proxy)
    commands = [["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", str(MEMCACHED)]]
    commands += [[str(binaries / f"swift-{name}-server"), f"{folder}/{name}.conf"] for name in (*_STORES, "proxy")]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("w"))
        for command in commands:
            server = subprocess.Popen([*enter, *command], stdout=log, stderr=log, start_new_session=True)
            stack.callback(_end, server)
        _await(enter, folder / "log")
        yield


def _end(server: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        server.terminate()
    server.wait()


def _await(enter: Sequence[str], log: Path) -> None:
    """Wait until the proxy answers."""
    for _ in range(150):
        probe = ["python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {PORT}), 1)"]
        if subprocess.run([*enter, *probe], capture_output=True).returncode == 0:
            return
        time.sleep(0.2)
    raise RuntimeError(f"Swift did not start: {log.read_text()[-2000:]}")
