"""Pages run from top to bottom in a folder with a small run: their Python, and the commands of light jobs that read it.

Where a `text` block follows Python, it is what the Python printed. So runs the reader of examples/. What the other
commands are held to: tests/test_shown_commands.py.
"""

import itertools
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from shown_commands import PAGES, ROOT, Block, Command, blocks, commands_in, job_of

import dupq
from dupq import cli, storage

LIGHT = {"export", "plan", "prune", "report", "runs", "status"}  # need no Ray and take seconds
RUN = "out/sample/runs"


def of_python(left: dict[str, Any]) -> None:
    assert left["sure"].num_rows == len(left["same"])
    assert left["stricter"].threshold >= left["looser"].threshold
    assert left["vectors"].shape == (2, left["encoder"].dimensions)
    assert left["found"].groups() == [[0, 1]]


def of_export(left: dict[str, Any]) -> None:
    members = left["graph"].number_of_nodes()
    assert members == len(left["titles"].fetchall()) == len(left["largest"]) > 0


CHECKS = {"docs/python.md": of_python, "docs/export.md": of_export}


class Python(NamedTuple):
    """A Python block, and the output that the page shows; None: it shows none."""

    code: str
    printed: str | None


def shown(page: Path) -> list[Python | Command]:
    """Return the Python blocks of a page and its commands that are run, in their order."""
    found: list[Python | Command] = []
    for block, after in itertools.pairwise([*blocks(page.read_text()), Block("", [])]):
        if block.language == "python":
            printed = "\n".join([*after.lines, ""]) if after.language == "text" else None
            found.append(Python("\n".join(block.lines), printed))
        else:
            found += [job for job in map(job_of, commands_in(block)) if job and _is_run(job)]
    return found


def _is_run(job: Command) -> bool:
    return job.job in LIGHT and any(argument.startswith(RUN) for argument in job.arguments)


# the pages of notebooks hold what their cells print: test_notebooks runs the cells
RUNNABLE = [page for page in PAGES if page.parent.name != "notebooks" and shown(page)]


def test_the_pages_that_show_python_are_found() -> None:
    pages = {str(page.relative_to(ROOT)) for page in RUNNABLE}
    assert pages >= {"README.md", "docs/quick-start.md", "docs/report.md", "docs/scale.md", *CHECKS}


@pytest.mark.reads
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_from_top_to_bottom(
    small_runs, page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(small_runs.folder).parents[1])
    left: dict[str, Any] = {}
    for part in shown(page):
        if isinstance(part, Command):
            with pytest.raises(SystemExit) as ended:
                cli.main([part.job, *part.arguments])
            assert ended.value.code == 0, part
        else:
            capsys.readouterr()
            code = part.code.replace("RUN_ID", storage.name(small_runs.strict))
            exec(compile(code, str(page), "exec"), left)
            said = [
                line for line in capsys.readouterr().out.splitlines(keepends=True) if "compiling what is" not in line
            ]
            assert part.printed in (None, "".join(said))  # whatever this machine had to compile
    CHECKS.get(str(page.relative_to(ROOT)), bool)(left)


def test_the_example_that_reads_a_run_prints_clusters_and_pairs(
    small_runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["read_run.py", small_runs.loose])
    runpy.run_path(str(ROOT / "examples" / "laptop" / "read_run.py"))
    clusters, _, pairs = capsys.readouterr().out.partition("the likeliest pairs")
    assert clusters.count("\ncluster ") == 5
    titles = {*dupq.open_run(small_runs.loose).questions.arrow(["title"])["title"].to_pylist()}
    printed = [line.split("  ", 2)[2].split("  |  ") for line in pairs.splitlines() if "  |  " in line]
    assert printed
    assert titles.issuperset(title for pair in printed for title in pair)
