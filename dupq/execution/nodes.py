"""Whether the nodes of a cluster run the same code and libraries as the job, so that they give the same answer."""

import hashlib
import socket
from functools import cache
from pathlib import Path

import dupq
from dupq.errors import ClusterError
from dupq.runs.writer import versions

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
