"""One page of all benchmarks: each is run as a process, and one that fails loses nothing of the others."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "all.py"


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    spec = importlib.util.spec_from_file_location("all_benchmarks", FILE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "all_benchmarks", module)
    spec.loader.exec_module(module)
    return module


def test_every_file_that_can_be_run_is_on_the_page_and_is_asked_for_what_it_reads(everything) -> None:
    for benchmark in everything.BENCHMARKS:
        source = (FILE.parent / f"{benchmark.name}.py").read_text()
        for option in (*benchmark.small, *benchmark.full, benchmark.writes):
            assert not option.startswith("--") or f'"{option}"' in source, (benchmark.name, option)

    there = {file.stem for file in FILE.parent.glob("*.py") if "__main__" in file.read_text()} - {FILE.stem}
    shown = {benchmark.name for benchmark in everything.BENCHMARKS}
    assert shown | set(everything.ELSEWHERE) == there
    assert not shown & set(everything.ELSEWHERE)


def test_what_benchmarks_use_of_dupq_is_there() -> None:
    for file in sorted(FILE.parent.rglob("*.py")):
        nodes, modules = [*ast.walk(ast.parse(file.read_text()))], {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dupq":
                for alias in node.names:
                    found = getattr(importlib.import_module(node.module), alias.name, None)
                    found = found or importlib.import_module(f"{node.module}.{alias.name}")
                    if isinstance(found, ModuleType):
                        modules[alias.asname or alias.name] = found
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                assert hasattr(modules[node.value.id], node.attr), f"{file.name}: {node.value.id}.{node.attr}"
