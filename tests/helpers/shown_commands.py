"""The code that pages and scripts show: Python, and commands that are checked by the programs' own parsers."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dupq.cli import COMMANDS
from dupq.options import Parser
from dupq.pipelines.arguments import FREE_SECTIONS
from dupq.settings import config

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/*.md")]
)
# programs that are not here
UNCHECKED = {
    *("aws", "datasette", "docker", "embedding-atlas", "eksctl", "helm", "kind", "kubectl", "pipx"),
    *("sqlite-utils", "uv"),
}
_CRON = re.compile(r"^(?:[\d*]+ ){5} *(?:flock -n \S+ )?")
_SHOWN = re.compile(r"^(?:(?:\w+=\S+ )*(?:\.venv/bin/)?(?:dupq|python|ray|make|pip|pytest)|examples/\S+\.sh)(?: |$)")


class Block(NamedTuple):
    """A block of code of a page: its language ("" where none is named), and its lines."""

    language: str
    lines: list[str]


class Command(NamedTuple):
    """One call of a job of dupq: its name, and what follows it."""

    job: str
    arguments: list[str]


def blocks(page: str) -> list[Block]:
    """The fenced and indented blocks of a Markdown page, in their order, without fences and indentation."""
    found: list[Block] = []
    fence, before = "", ""
    for line in page.splitlines():
        opened = re.match(r"(`{3,})(\w*)", line)
        if fence:
            if line.startswith(fence):
                fence = ""
            else:
                found[-1].lines.append(line)
        elif opened:
            fence = opened[1]
            found.append(Block(opened[2], []))
        elif line.startswith("    "):
            if not before.startswith("    "):
                found.append(Block("", []))
            found[-1].lines.append(line.strip())
        before = line
    return found


def lines_of(file: Path) -> Iterator[str]:
    """The commands of a page, or of a shell script with its variables as they are first set, each in one line."""
    if file.suffix == ".sh":
        yield from filter(_SHOWN.match, map(str.strip, _filled_in(file.read_text()).replace("\\\n", " ").splitlines()))
        return
    for block in blocks(file.read_text()):
        if block.language != "python":
            yield from commands_in(block)


def commands_in(block: Block) -> Iterator[str]:
    """The commands of a block that is not Python, each in one line."""
    for line in "\n".join(block.lines).replace("\\\n", " ").splitlines():
        command = _CRON.sub("", line)
        if _SHOWN.match(command) or command.partition(" ")[0] in UNCHECKED:
            yield command
        else:
            assert not re.search(r"^[\w./]+ \S.* --[a-z]", line), f"{line}: a command that nothing checks"


def _filled_in(script: str) -> str:
    for name, value in re.findall(r"^ *(\w+)=\(([^)]+)\)", script, re.MULTILINE):
        script = script.replace(f'"${{{name}[@]}}"', value)
    script = re.sub(r' "\$\{\w+\[@\]\}"', "", script)  # what the caller adds
    for name, value in re.findall(r"^(\w+)=(?:\$\{\w+:-)?([\w.]+)", script, re.MULTILINE):
        script = script.replace(f"${name}", value)
    return script


def words_of(command: str) -> list[str]:
    """A command without settings of the environment in front and without the folder of a virtual environment."""
    words = shlex.split(command, comments=True)
    while re.match(r"\w+=", words[0]):
        words = words[1:]
    return [words[0].removeprefix(".venv/bin/"), *words[1:]]


def job_of(command: str) -> Command | None:
    """The job of dupq that a command calls, by `dupq`, by a script of jobs/ or by `ray submit`."""
    words = words_of(command)
    if words[0] == "dupq":
        return Command(words[1].replace("-", "_"), words[2:])
    if not (words[0] == "python" and words[1].startswith("jobs/")) and words[:2] != ["ray", "submit"]:
        return None
    place = next(place for place, word in enumerate(words) if word.startswith("jobs/"))
    assert (ROOT / words[place]).is_file(), words[place]
    if words[0] == "ray":
        assert (ROOT / words[2]).is_file(), words[2]
        assert words[place + 1] == "--", "arguments of `ray submit` follow two dashes"
        assert not any(set(word) & set(" '\"*") for word in words[place + 2 :]), "the head's shell reads them again"
    return Command(Path(words[place]).stem, words[place + 1 + (words[0] == "ray") :])


def jobs_of(file: Path) -> list[Command]:
    """All calls of jobs in a page or script."""
    return [job for job in map(job_of, lines_of(file)) if job]


def parser(job: str) -> argparse.ArgumentParser:
    """The parser of a job."""
    made = Parser(prog=job, exit_on_error=False)
    COMMANDS[job].add_options(made)
    return made


def check_job(command: Command) -> None:
    """Its options and their values are right, and the settings that it names exist and may be changed by it.

    An argument "…" stands for those that are left out. A synopsis, with brackets, names options that there are.
    """
    known = parser(command.job)
    if any("[" in argument for argument in command.arguments):
        named = re.findall(r"--[a-z-]+", " ".join(command.arguments))
        assert set(named) <= options_of(known)
        return
    follows = ["", *command.arguments]
    given = [
        word for before, word in zip(follows, command.arguments, strict=False) if word != "…" or before[:2] == "--"
    ]
    if len(given) < len(command.arguments):
        for action in known._actions:
            action.required = False
    found = known.parse_args(given)
    if not hasattr(found, "assignments"):
        return
    config.load(getattr(found, "preset", config.DEFAULT_PRESET), found.assignments)
    if command.job == "dedup":
        assert all(assignment.partition(".")[0] in FREE_SECTIONS for assignment in found.assignments)


def options_of(known: argparse.ArgumentParser) -> set[str]:
    """The names of a parser's options, but those that it only still knows."""
    return {option for action in known._actions if action.help != argparse.SUPPRESS for option in action.option_strings}
