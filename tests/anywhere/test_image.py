"""The Dockerfile names files that are there and that .dockerignore lets through; nothing runs as root."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_all_that_is_copied_is_there_and_the_user_is_not_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert len(lines) <= 30
    copied = {name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]}
    assert all((ROOT / name).exists() for name in copied)
    let_through = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert copied == set(let_through)
    users = [place for place, line in enumerate(lines) if line.startswith("USER ")]
    assert lines[users[-1]] != "USER root"
    assert users[-1] > max(place for place, line in enumerate(lines) if line.startswith("RUN "))
