"""Every command of README, docs and examples is one that there is today, and every option named in passing too.

Jobs of dupq and commands of Ray are read by their own parsers; of other programs of the repository the options are in
their source. What is cheap is also run, beside the Python of the pages: tests/api/test_docs.py.
"""

import itertools
import re
import tomllib
from pathlib import Path

import pytest
from ray.scripts.scripts import cli as ray_commands
from shown_commands import PAGES, ROOT, UNCHECKED, check_job, job_of, lines_of, options_of, parser, words_of

from dupq import __version__
from dupq.cli import COMMANDS
from dupq.encoders.encoding import kinds
from dupq.settings import config
from dupq_papers.settings import PaperText, PaperTraining

FILES = [*PAGES, *sorted(ROOT.glob("examples/*/*.sh"))]
HISTORY = {"lab-log.md"}  # tells of what there was
OF_OTHERS = {  # what they are options of
    *("--bucket", "--copy-source", "--key", "--name", "--query", "--region", "--aws-service-name"),  # aws
    *("--address", "--generate", "--head", "--runtime-env-json", "--working-dir"),  # Ray
    *("--cluster", "--from-env-file", "--from-file", "--namespace", "--permission-policy-arns"),  # Kubernetes
    *("--service-account-name", "--collector"),  # Kubernetes, node_exporter
    *("--extra-index-url", "--pip-args", "--upgrade", "--torch-backend", "--with"),  # pip, pipx, uv
    "--shell",  # of argcomplete
    *("--build-arg", "--env", "--format", "--read-only", "--tmpfs", "--user"),  # docker
    *("--csv", "--vars"),  # sqlite-utils, dbt
    *("--neighbors", "--text", "--x", "--y"),  # Embedding Atlas
    *("--alike", "--leave-out", "--model", "--no-answers", "--rounds", "--short", "--titles"),  # benchmarks
    *("--sets", "--work"),  # likewise
}
NO_SETTINGS = {
    *("clusters.csv", "clusters.jsonl", "clusters.graphml", "encoder.json"),
    *("run.at", "run.changes", "run.log", "run.match", "run.plot"),
}


def name(file: object) -> str:
    return str(file.relative_to(ROOT)) if isinstance(file, Path) else ""


@pytest.mark.parametrize("file", FILES, ids=name)
def test_every_command_is_one_that_there_is(file: Path) -> None:
    for line in lines_of(file):
        try:
            _check(line)
        except Exception as error:
            raise AssertionError(f"{line}: {error}") from error


def _check(line: str) -> None:
    job, words = job_of(line), words_of(line)
    if job:
        check_job(job)
    elif words[0] in UNCHECKED:
        return
    else:
        {"make": _make, "python": _python, "pip": _pip, "pytest": _pytest, "ray": _ray}.get(words[0], _script)(words)


def _make(words: list[str]) -> None:
    text = (ROOT / "Makefile").read_text()
    for word in words[1:]:
        variable, is_set, _ = word.partition("=")
        assert re.search(rf"^{variable} \?=" if is_set else rf"^{word}:", text, re.MULTILINE)


def _python(words: list[str]) -> None:
    if words[1] == "-c":
        return
    is_module = words[1] == "-m"
    path = words[2].replace(".", "/") if is_module else words[1]
    file = ROOT / path / "__main__.py" if (ROOT / path).is_dir() else ROOT / path
    _has_options(file, words[2 + is_module :])


def _has_options(file: Path, arguments: list[str]) -> None:
    source = file.read_text()
    for option in [argument for argument in arguments if argument.startswith("--")]:
        assert f'"{option}"' in source, option


def _pip(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert words[1] == "install"
    for package, extra in re.findall(r"([\w.-]+)\[(\w+)\]", " ".join(words)):
        assert package in (".", f"dupq-{__version__}-py3-none-any.whl"), package
        assert extra in extras


def _pytest(words: list[str]) -> None:
    marks = [
        line.partition(":")[0]
        for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    ]
    for before, word in itertools.pairwise(words):
        assert before != "-m" or word in marks
        assert not word.startswith("tests/") or (ROOT / word).exists()


def _ray(words: list[str]) -> None:
    command = ray_commands.get_command(None, words[1])
    command.make_parser(command.make_context(words[1], words[2:], resilient_parsing=True)).parse_args(words[2:])


def _script(words: list[str]) -> None:
    assert (ROOT / words[0]).stat().st_mode & 0o111


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in HISTORY], ids=name)
def test_options_and_settings_named_in_passing_exist(page: Path) -> None:
    text = page.read_text()
    options = set.union(*(options_of(parser(job)) for job in COMMANDS))
    assert set(re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", text)) <= options | OF_OTHERS
    for assignment in set(re.findall(r"--set ([a-z_]+\.[a-z_]+=[\w.]*\w)", text)) - {"section.name=value"}:
        config.load(assignments=[assignment.replace("=N", "=1")])
    sections = {section: set(names) for section, names in config.to_dict(config.load()).items()}
    sections["encoder"].update(*(kind.model_fields for kind in kinds().values()))
    sections["text"] |= set(PaperText.model_fields)
    sections["training"] |= set(PaperTraining.model_fields)
    for section, setting in re.findall(r"`([a-z_]+)\.([a-z_]+)`", text):
        is_none = section not in sections or f"{section}.{setting}" in NO_SETTINGS
        assert is_none or setting in sections[section], f"{section}.{setting}"
