"""Break dupq in sixty small ways, and see which of them its tests do not notice.

    python tests/mutations.py draw                    writes tests/mutations.tsv, from a seed
    python tests/mutations.py try 0 59 > out/tried.tsv runs the tests of what is broken, on a copy of the tree for each

A mutation is found by its old line, wherever that stands by now. First the tests of its module are run: those of its
name, or the three shortest that import it. What they let pass goes through the whole flow, on a small archive.
"""

import ast
import copy
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_suffix(".tsv")
FLOW = ("tests/golden", "tests/api/test_find_duplicates.py")
WHOLE = {"chaos", "jobs", "bad_inputs", "cluster", "anywhere"}  # folders of slow tests
KINDS = ("Compare", "BoolOp", "UnaryOp", "Constant", "Return", "Expr")
LIMIT = 300  # seconds of a processor for the tests of a mutation: one that never ends is noticed
OPPOSITE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


def changed(node: ast.AST) -> ast.AST | None:
    """Return what stands in the node's place, or None where nothing of its kind is broken."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[operator]) if type(operator) in OPPOSITE:
            new.ops = [OPPOSITE[type(operator)]()]
        case ast.BoolOp():
            new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            return new.operand
        case ast.Constant(value=int() | float()) if not isinstance(new.value, bool):
            new.value += random.choice((1, -1))
        case ast.Return(value=ast.expr()):
            new.value = ast.Constant(None)
        case ast.Expr(value=ast.Call()):
            return ast.Pass()
        case _:
            return None
    return new


def places(path: Path) -> Iterator[tuple[str, str, int, str, str]]:
    """Yield (kind, path, line, old line, new line) of all that can be broken in the functions of a file."""
    lines = path.read_text().splitlines()
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))
    for node in (node for function in functions for part in function.body for node in ast.walk(part)):
        new = changed(node)
        if new and node.lineno == node.end_lineno:
            line, first, end = lines[node.lineno - 1], node.col_offset, node.end_col_offset
            text = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
            place = str(path.relative_to(ROOT)), node.lineno, line, line[:first] + text + line[end:]
            yield (type(node).__name__, *place)


def draw() -> None:
    """Write ten of each kind, each in a line of its own."""
    random.seed(67)
    found = [place for path in sorted(ROOT.glob("dupq/**/*.py")) for place in places(path)]
    kinds = {kind: sorted({place[1:] for place in found if place[0] == kind}) for kind in KINDS}
    drawn = sorted(place for kind in KINDS for place in random.sample(kinds[kind], 60 // len(KINDS)))
    LIST.write_text("".join("\t".join(map(str, place)) + "\n" for place in drawn))


def tests_of(path: str) -> list[str]:
    """Return the files of the tests that ought to notice a change of the file: none of whole jobs."""
    module = path.removesuffix(".py").replace("/", ".")
    parent, _, name = module.rpartition(".")
    imports = re.compile(rf"from {module} import|from {parent} import .*\b{name}\b")
    files = [file for file in ROOT.glob("tests/**/test_*.py") if not WHOLE.intersection(file.parts)]
    of_it = sorted(files, key=lambda file: (not imports.search(file.read_text()), file.stat().st_size, file))
    named = [file for file in files if file.stem == f"test_{name}"]
    return [str(file.relative_to(ROOT)) for file in named or of_it[:3]]


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))


def survives(path: str, old: str, new: str) -> str:
    """Return what the tests say of a tree in which the line is the new one."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", "out", ".*_cache"))
        text = (tree / path).read_text() if (tree / path).exists() else ""
        if old not in text.splitlines():
            return "gone"
        (tree / path).write_text(text.replace(old, new, 1))
        env = os.environ | {"PYTHONPATH": f"{tree}:{tree}/papers"}
        for tests in (tests_of(path), FLOW):
            command = [sys.executable, "-m", "pytest", "-qx", "-m", "not realdata and not cluster", *tests]
            if subprocess.run(command, cwd=tree, env=env, capture_output=True, preexec_fn=limited).returncode:
                return f"killed by {' '.join(tests)}"
    return "survived"


if __name__ == "__main__":
    if sys.argv[1] == "draw":
        draw()
    else:
        for line in LIST.read_text().splitlines()[int(sys.argv[2]) : int(sys.argv[3]) + 1]:
            path, number, old, new = line.split("\t")
            print(f"{path}:{number}\t{survives(path, old, new)}\t{new.strip()}", flush=True)
