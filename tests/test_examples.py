"""Every command in examples/ is one that the jobs take today, and every file that is named is there."""

import argparse
import importlib
import py_compile
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from dupq.cli.main import JOBS
from dupq.cli.options import Parser
from dupq.pipelines.dedup import FREE_SECTIONS
from dupq.settings import config

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SCALES = ("laptop", "one-big-machine", "cluster")
FILES = sorted(file for file in EXAMPLES.rglob("*") if file.suffix in (".md", ".sh"))
COMMAND = re.compile(r"^\s*((?:dupq|python jobs/|ray submit \S+ jobs/).*)$")
OTHER_PROGRAMS = {"--env", "--generate", "--head", "--questions"}  # of docker, Ray, and a benchmark


class Command(NamedTuple):
    """One call of a job: its name, and what follows it."""

    job: str
    arguments: list[str]


def commands(file: Path) -> list[Command]:
    """The calls of jobs in a script or in the indented blocks of a page, with variables as they are first set."""
    text = file.read_text().replace("\\\n", " ")
    if file.suffix == ".sh":
        text = _filled_in(text)
    return [_command(shlex.split(match[1], comments=True)) for match in map(COMMAND.match, text.splitlines()) if match]


def _filled_in(script: str) -> str:
    script = re.sub(r"\$\{\w+:\+([^}]*)\}", r"\1", script).replace("$WEBHOOK", "https://example.com/hook")
    for name, value in re.findall(r"^ *(\w+)=\(([^)]+)\)", script, re.MULTILINE):
        script = script.replace(f'"${{{name}[@]}}"', value)
    for name, value in re.findall(r"^(\w+)=(?:\$\{\w+:-)?([\w.]+)", script, re.MULTILINE):
        script = script.replace(f"${name}", value)
    return script


def _command(words: list[str]) -> Command:
    if words[0] == "dupq":
        return Command(words[1], words[2:])
    place = next(place for place, word in enumerate(words) if word.startswith("jobs/"))
    assert (ROOT / words[place]).is_file(), words[place]
    if words[0] == "ray":
        assert (ROOT / words[2]).is_file(), words[2]
        assert words[place + 1] == "--", "arguments of `ray submit` follow two dashes"
        assert not any(set(word) & set(" '\"*") for word in words[place + 2 :]), "the head's shell reads them again"
    return Command(Path(words[place]).stem, words[place + 1 + (words[0] == "ray") :])


def parser(job: str) -> argparse.ArgumentParser:
    made = Parser(prog=job, exit_on_error=False)
    importlib.import_module(f"dupq.cli.{job.replace('-', '_')}").add_options(made)
    return made


def test_there_is_an_example_of_each_scale() -> None:
    assert {file.parent.name for file in FILES} == set(SCALES)
    for scale in SCALES:
        page = (EXAMPLES / scale / "README.md").read_text()
        assert len(page.splitlines()) <= 60, f"{scale}: at most a page"
        assert f"examples/{scale}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    ("file", "command"),
    [(file, command) for file in FILES for command in commands(file)],
    ids=lambda value: value.job if isinstance(value, Command) else f"{value.parent.name}/{value.name}",
)
def test_every_command_parses_and_its_settings_exist(file: Path, command: Command) -> None:
    found = parser(command.job).parse_args(command.arguments)
    if command.job == "report":
        return
    config.load(getattr(found, "preset", config.DEFAULT_PRESET), found.set)
    if command.job == "dedup":
        assert all(assignment.partition(".")[0] in FREE_SECTIONS for assignment in found.set)


def test_each_scale_ends_in_a_run() -> None:
    for scale in SCALES:
        jobs = {command.job for file in (EXAMPLES / scale).iterdir() for command in commands(file)}
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
    night = next(command for command in commands(EXAMPLES / "cluster/nightly.sh") if command.job == "dedup")
    of_night = parser("dedup").parse_args(night.arguments)
    of_first = parser("dedup").parse_args(shlex.split(first.partition(" -- ")[2]))
    for name in ("questions", "links", "encoder", "output"):
        assert Path(getattr(of_night, name)).name == Path(getattr(of_first, name)).name
    assert Path(of_night.previous).name == Path(of_first.output).name


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_options_and_settings_named_in_passing_exist(file: Path) -> None:
    text = file.read_text()
    options = {option for job in JOBS for action in parser(job)._actions for option in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", text)) <= options | OTHER_PROGRAMS
    for assignment in re.findall(r"--set ([a-z_]+\.[a-z_]+=\w+)", text):
        config.load(assignments=[assignment.replace("=N", "=1")])
    for section, name in re.findall(r"`([a-z_]+)\.([a-z_]+)`", text):
        if section in config.to_dict(config.load()):
            assert name in config.to_dict(config.load())[section], f"{section}.{name}"


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


def test_python_files_compile(tmp_path: Path) -> None:
    for file in EXAMPLES.rglob("*.py"):
        py_compile.compile(str(file), str(tmp_path / "compiled"), doraise=True)
