"""The Dockerfile names files that are there and that .dockerignore lets through; nothing runs as root."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "Dockerfile").read_text().splitlines()


def copied() -> set[str]:
    """The files and folders of the repository that the image has."""
    return {name for line in LINES if line.startswith("COPY ") for name in line.split()[1:-1]}


def environment() -> dict[str, str]:
    """The variables of a process in the image."""
    pairs = (pair.split("=", 1) for line in LINES if line.startswith("ENV ") for pair in line.split()[1:])
    return dict(pairs)


def user() -> int:
    """Who runs in the image; a number, as Kubernetes' runAsNonRoot demands."""
    (user,) = [line.removeprefix("USER ") for line in LINES if line.startswith("USER ")]
    owner, group = user.split(":")
    assert owner == group
    return int(owner)


def test_all_that_is_copied_is_there_and_the_user_is_not_root() -> None:
    assert len(LINES) <= 30
    assert all((ROOT / name).exists() for name in copied())
    let_through = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert copied() == set(let_through)
    assert user() >= 10_000
    numbers = {kind: [at for at, line in enumerate(LINES) if line.startswith(kind)] for kind in ("USER ", "RUN ")}
    assert numbers["USER "][0] > max(numbers["RUN "])
