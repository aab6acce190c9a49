"""An S3 server (moto) on loopback, whose log has a line a request."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

_BUCKET = "dupq"


@contextlib.contextmanager
def s3(log: Path) -> Iterator[dict[str, str]]:
    """The environment of a process that shall use it; the bucket is s3://dupq."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    keys = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    command = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _await(f"{endpoint}/moto-api/")
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{_BUCKET}", method="PUT"), timeout=120).close()
        yield {**os.environ, **keys, "AWS_DEFAULT_REGION": "us-east-1"}
    finally:
        server.terminate()
        server.wait()


def _await(address: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"no S3 server at {address}")
