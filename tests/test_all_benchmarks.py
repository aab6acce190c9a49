"""One page of all benchmarks: it names those that are there, and what they use of dupq is there too."""

import ast
import importlib
import runpy
from pathlib import Path
from types import ModuleType

FILE = Path(__file__).parents[1] / "benchmarks" / "all.py"


def test_every_file_that_can_be_run_is_on_the_page_and_is_asked_for_what_it_reads() -> None:
    everything = runpy.run_path(str(FILE))
    for benchmark in everything["BENCHMARKS"]:
        source = (FILE.parent / f"{benchmark.name}.py").read_text()
        for option in (*benchmark.small, *benchmark.full, benchmark.writes):
            assert not option.startswith("--") or f'"{option}"' in source, (benchmark.name, option)

    there = {file.stem for file in FILE.parent.glob("*.py") if "__main__" in file.read_text()} - {FILE.stem}
    shown = {benchmark.name for benchmark in everything["BENCHMARKS"]}
    assert shown | set(everything["ELSEWHERE"]) == there
    assert not shown & set(everything["ELSEWHERE"])


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
