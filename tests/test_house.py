"""What holds for the whole project: light imports, one version, presets that parse, the interface."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

from dupq import __version__, storage
from dupq.cli import main

ROOT = Path(__file__).parents[1]
JOBS = ("ingest", "train", "dedup", "evaluate", "report", "export", "plan", "from_dump")


def test_what_is_imported_first_loads_neither_ray_nor_torch_nor_pandas(tmp_path: Path) -> None:
    """In one new process, one after the other; pandas takes .8 s, and pyarrow's dataset and read_table import it."""
    uri, table = str(tmp_path / "table.parquet"), pa.table({"key": [1, 2]})
    storage.write_table(uri, table, table.schema)
    core = (
        *("settings.config", "tables", "cli", "commands", "review", "export", "serve.server", "report.page"),
        *("api.runs", "api.lookup", "api.duplicates", "near_duplicates.minhash"),
    )
    steps = [
        *((f"import dupq.{name}", "ray torch gensim pandas") for name in core),
        ("import dupq.encoders.word_bag", "ray gensim pandas"),
        ("import dupq.pipelines.dedup", "gensim pandas"),
        (f"import dupq.stages.training.fit, dupq.storage; dupq.storage.read_table({uri!r})", "pandas"),
    ]
    each = "exec(line); print(line, {*unwanted.split()} & {*sys.modules})"
    code = f"import sys\nfor line, unwanted in {steps}:\n    {each}"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [f"{line} set()" for line, _ in steps]


def test_the_papers_and_the_changelog_are_of_this_version() -> None:
    papers = tomllib.loads((ROOT / "papers/pyproject.toml").read_text())["project"]
    assert (papers["version"], papers["dependencies"]) == (__version__, [f"dupq[jobs]=={__version__}"])
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert newest[1] == __version__


@pytest.mark.parametrize("job", JOBS)
def test_each_job_script_belongs_to_this_version(job: str) -> None:
    script = (ROOT / "jobs" / f"{job}.py").read_text()
    assert re.search(r'^VERSION = "(.+)"$', script, re.MULTILINE).group(1) == __version__


def test_a_script_of_another_version_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "report.py"
    script.write_text((ROOT / "jobs" / "report.py").read_text().replace(__version__, "0.0.9"))
    ended = subprocess.run([sys.executable, script, "--run", "x"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "0.0.9" in ended.stderr


TABLE = {"--title", "--text", "--id", "--tags", "--date", "--url", "--format"}
JUDGE = {"--judge", "--judge-model", "--judge-pairs", "--judge-budget", "--judge-tokens", "--judge-required"}
SCOPES = {"--scope", "--window", "--earlier"}
KNOWN = {"--links", "--truth", "--previous", "--precision", "--verdicts"}
GATES = {"--min-recall", "--max-cluster", "--max-change", "--min-rows-share"}
DEDUP = {"--questions", "--encoder", "--output", "--known-links", "--skip-shard", "--reranker", "--gpus"}
FROM_DUMP = {"--dump", "--output", "--preset", "--reranker", "--gpus", "--site"}
INTERFACE = {
    "ingest": {"--dump", "--output", "--site", "--answers", "--max-reject-share", "--scope", *TABLE},
    "train": {"--questions", "--links", "--pairs", "--output", "--preset", "--workers", "--gpus"},
    "dedup": DEDUP | KNOWN | GATES | JUDGE | SCOPES,
    "evaluate": {"--questions", "--links", "--output", "--encoder", "--table", "--pair-set", "--quick", "--gpus"},
    "report": {"--run"},
    "export": {"--run", "--to", "--output", "--since"},
    "plan": {"--questions", "--run", "--json"},
    "from_dump": FROM_DUMP | KNOWN | TABLE | JUDGE | SCOPES,
}


@pytest.mark.parametrize("job", JOBS)
def test_the_command_line_is_the_one_that_was_promised(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([job.replace("_", "-"), "--help"])
    shown = capsys.readouterr().out
    shared = {"--help", "--ray", "--set", "--log", "--verbose"}
    everywhere = {"--help"} if job in ("report", "export", "plan") else shared
    assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*", shown.partition("options:")[2])) == INTERFACE[job] | everywhere


# Types that are left out, where a library has none or a value may be anything; fewer are welcome.
SIGNATURES_WITH_ANY, TYPE_IGNORES = 34, 10


def test_types_are_told_to_users_and_hardly_ever_left_out() -> None:
    assert (ROOT / "dupq" / "py.typed").is_file()
    sources = [file.read_text() for file in (ROOT / "dupq").rglob("*.py")]
    assert sum(source.count("type: ignore") for source in sources) <= TYPE_IGNORES
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert sum(any(map(_has_any, _annotations(function))) for function in functions) <= SIGNATURES_WITH_ANY


def _annotations(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    parameters = [node for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    return [found for found in (function.returns, *(node.annotation for node in parameters)) if found is not None]


def _has_any(annotation: ast.expr) -> bool:
    """Also in an annotation that is written as a text."""
    return re.search(r"\bAny\b", ast.unparse(annotation)) is not None


def test_lock_files_pin_every_dependency() -> None:
    pinned = (ROOT / "requirements.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for declared in (*project["dependencies"], *extras["jobs"], *extras["reranker"]):
        name = re.match("[a-z0-9-]+", declared)[0]
        assert name in ("torch", "dupq") or re.search(rf"^{name}(\[.*\])?==", pinned, re.MULTILINE), name
    assert "torch==2.13.0\n" in (ROOT / "requirements-torch.lock").read_text()
