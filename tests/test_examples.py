"""The examples: one for each scale, sound scripts, and commands that belong together.

That their commands are right is held by tests/test_shown_commands.py, like that of all pages.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from shown_commands import ROOT, jobs_of, parser

EXAMPLES = ROOT / "examples"
SCALES = ("laptop", "one-big-machine", "cluster")
FILES = sorted(file for file in EXAMPLES.rglob("*") if file.suffix in (".md", ".sh"))


def test_there_is_an_example_of_each_scale_and_it_ends_in_a_run() -> None:
    assert {file.parent.name for file in FILES} == set(SCALES)
    for scale in SCALES:
        page = (EXAMPLES / scale / "README.md").read_text()
        assert len(page.splitlines()) <= 60, f"{scale}: at most a page"
        assert f"examples/{scale}" in (ROOT / "README.md").read_text()
        jobs = {command.job for file in FILES if file.parent.name == scale for command in jobs_of(file)}
        assert jobs >= {"ingest", "train", "dedup"}


def once(page: Path) -> list[str]:
    """The indented lines of a page from the token to the first `ray down`, a command each."""
    text = re.sub(r" *\\\n *", " ", page.read_text())
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    first = lines.index("ray get-auth-token --generate")
    return lines[first : lines.index("ray down -y cluster.yaml") + 1]


def test_both_pages_on_the_cluster_begin_with_the_same_commands_and_a_run_that_the_nights_can_build_on() -> None:
    commands_once = once(EXAMPLES / "cluster/README.md")
    assert once(ROOT / "docs/cluster.md") == commands_once
    first = next(line for line in commands_once if "jobs/dedup.py" in line)
    assert "--previous" not in first
    night = next(command for command in jobs_of(EXAMPLES / "cluster/night.sh") if command.job == "dedup")
    of_night = parser("dedup").parse_args(night.arguments)
    of_first = parser("dedup").parse_args(shlex.split(first.partition(" -- ")[2]))
    for name in ("questions", "links", "encoder", "output"):
        assert Path(getattr(of_night, name)).name == Path(getattr(of_first, name)).name
    assert Path(of_night.previous).name == Path(of_first.output).name


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_files_named_in_them_exist(file: Path) -> None:
    text = file.read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (file.parent / link).exists(), link
    for path in re.findall(r"(?<![\w/])((?:examples|benchmarks|jobs)/[\w./-]+\.\w+|cluster(?:-local)?\.yaml)", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.sh")), ids=lambda file: f"{file.parent.name}/{file.name}")
def test_scripts_are_sound_and_can_be_called(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert script.stat().st_mode & 0o111
