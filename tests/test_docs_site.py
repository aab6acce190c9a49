"""The site of the docs is built strictly, without a dead link or a page that has no place, and made pages are right."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import dupq
from dupq import tables
from dupq.cli import COMMANDS

ROOT = Path(__file__).parents[1]


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_a_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = [page.read_text() for page in tmp_path.rglob("*.html")]
    assert len(pages) > len(list(ROOT.glob("docs/**/*.md")))
    loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="([^"]+)', "\n".join(pages))
    assert len(loaded) > len(pages)
    assert not [address for address in loaded if "//" in address]
    assert "changelog.html" not in (tmp_path / "search/search_index.json").read_text()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_of_pages_outside_of_docs_lead_somewhere(page: str) -> None:
    for link, _, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#?)([^)\s]*)\)", (ROOT / page).read_text()):
        target = ROOT / (link or page)
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), f"{link}#{anchor}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", ["tables", "commands"])
def test_a_page_that_is_made_is_the_one_that_is_there(name: str) -> None:
    made = runpy.run_path(str(ROOT / "docs" / f"make_{name}.py"))["page"]()
    assert (ROOT / "docs" / f"{name}.md").read_text("utf-8") == made, "run make docs"


@pytest.mark.parametrize("path", sorted(ROOT.glob("notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_has_a_page_with_its_text_its_code_and_its_charts(path: Path) -> None:
    page = (ROOT / "docs" / "notebooks" / f"{path.stem}.md").read_text("utf-8")
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"]]
    assert [cell for cell in cells if cell not in page] == [], "run make pictures"
    assert "```text" in page or '<div class="shown">' in page
    for chart in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page):
        assert (ROOT / "docs" / "notebooks" / chart).read_text("utf-8").startswith("<svg")
    assert str(ROOT) not in page


def test_the_docs_are_at_most_twenty_pages_in_four_sections() -> None:
    sections = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert len(sections) == 4
    assert sum(len(pages) for section in sections for pages in section.values()) <= 20


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    named = re.findall(r"^::: [\w.]+\.(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert set(named) >= set(dupq.__all__) - {"__version__"}


def test_every_column_of_the_tables_says_what_it_is() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))
    said = made["descriptions"](Path(tables.__file__).read_text())
    assert not [name for shown in made["SHOWN"] for name in shown.schema.names if not said[shown.name][name]]


def test_every_job_has_its_options_on_the_page_of_commands() -> None:
    headings = re.findall(r"^## dupq (.+)$", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE)
    assert headings == [name.replace("_", "-") for name in COMMANDS]
