"""The page on the architecture: its picture and its example are those of the code, and all imports are counted."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import grimp
import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "make_architecture.py"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
CONTRACTS = """[[tool.importlinter.contracts]]
name = "Layers"
layers = ["dupq.top", "dupq.middle | dupq.beside", "dupq.low"]
ignore_imports = ["dupq.low -> dupq.middle"]
"""


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("checkout")
    files = {
        "__init__": "from dupq.top import anything",
        "top": "import dupq.middle.deep\nfrom dupq import low, __version__",
        "middle/__init__": "",
        "middle/deep": "def late():\n    from ..beside import something",
        "middle/steps/__init__": "from dupq.low import something",
        "beside": "from dupq.low import something",
        "low": "if TYPE_CHECKING:\n    from dupq.top import a\nelse:\n    from dupq.middle import b",
    }
    for name, source in files.items():
        file = root / "dupq" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    (root / "pyproject.toml").write_text(CONTRACTS)
    return root


def test_the_picture_is_that_of_the_code_and_nothing_in_it_is_red(made: dict[str, Any]) -> None:
    picture = made["picture"]()
    assert made["PICTURE"].read_text("utf-8") == picture, "run make docs"
    assert made["_RED"] not in picture.partition("</defs>")[2]
    figures = made["figures"](ROOT)
    assert [figures[name] for name in ("circles", "arrows upwards", "arrows against the layers")] == [[], [], {}]


def test_each_box_says_what_it_is_in_the_picture_and_on_the_page(made: dict[str, Any]) -> None:
    boxes = made["imports_of"](ROOT).boxes.keys()
    assert made["ABOUT"].keys() == boxes
    rows = "".join(re.findall(r"^(\| `.*?) \| ", PAGE.partition("## The rule")[0], re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", rows)) == boxes


def test_the_example_on_the_page_is_in_the_code() -> None:
    code = "\n".join((ROOT / "dupq" / name).read_text() for name in ("pipelines/dedup.py", "stages/terms.py"))
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    parts = [part.strip("\n") for block in blocks for part in block.split("\n\n")]
    assert len(parts) == 3
    assert [part for part in parts if part not in code] == []


def test_the_imports_are_those_that_grimp_finds(made: dict[str, Any]) -> None:
    graph = grimp.build_graph("dupq", exclude_type_checking_imports=True, cache_dir=None)
    found: dict[tuple[str, str], list[str]] = {}
    for module in sorted(graph.modules - {"dupq"}):
        boxes = {name.split(".")[1] for name in graph.find_modules_directly_imported_by(module) if name != "dupq"}
        for box in boxes - {module.split(".")[1]}:
            found.setdefault((module.split(".")[1], box), []).append(module)
    assert {arrow: sorted(by) for arrow, by in made["imports_of"](ROOT).arrows.items()} == found


def test_a_circle_is_found_and_red_and_steps_belong_to_their_package(made: dict[str, Any], toy: Path) -> None:
    assert made["imports_of"](toy).arrows == {
        ("beside", "low"): ["dupq.beside"],
        ("low", "middle"): ["dupq.low"],
        ("middle", "beside"): ["dupq.middle.deep"],
        ("middle", "low"): ["dupq.middle.steps"],
        ("top", "low"): ["dupq.top"],
        ("top", "middle"): ["dupq.top"],
    }
    figures = made["figures"](toy)
    assert figures["circles"] == [["beside", "low", "middle"]]
    assert figures["arrows upwards"] == ["low → middle"]
    assert figures["arrows against the layers"].keys() == {"low → middle", "middle → beside"}
    assert figures["exemptions"] == ["Layers: dupq.low -> dupq.middle"]
    assert (figures["floors"], figures["arrows"], figures["arrows drawn"]) == (4, 6, 4)
    picture = made["picture"](toy).partition("</defs>")[2]
    assert picture.count(f'stroke="{made["_RED"]}"') == 3
    assert "Red: 1 arrows run upwards" in picture


def test_the_script_writes_the_figures_of_another_checkout_but_no_picture(toy: Path, tmp_path: Path) -> None:
    file, before = tmp_path / "figures.json", (ROOT / "docs/pictures/imports.svg").stat().st_mtime_ns
    command = [sys.executable, str(SCRIPT), "--root", str(toy), "--json", str(file)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert json.loads(file.read_text())["floors"] == 4
    assert "floors: 4\n" in printed
    assert (ROOT / "docs/pictures/imports.svg").stat().st_mtime_ns == before


def test_as_few_arrows_as_possible_run_upwards(made: dict[str, Any]) -> None:
    ring = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    assert len(made["built"]("abcd", ring).upwards) == 1
    two = [*ring, ("a", "c"), ("b", "a"), ("e", "f"), ("f", "e"), ("g", "e"), ("g", "a")]
    building = made["built"]("abcdefg", two)
    assert building.circles == [["a", "b", "c", "d"], ["e", "f"]]
    assert len(building.upwards) == 3
    assert all(building.floors[a] > building.floors[b] for a, b in {*two} - {*building.upwards})
    assert all(building.floors[a] < building.floors[b] for a, b in building.upwards)
