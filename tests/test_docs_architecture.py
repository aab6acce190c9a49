"""The page on the architecture: its picture and its example are those of the code, and all imports are counted."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "make_architecture.py"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


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
