"""Break dupq in sixty small ways, and see which of them its tests do not notice.

python tests/mutations.py draw                    writes tests/mutations.tsv, from a seed
python tests/mutations.py try 0 60 > out/tried.tsv runs the tests of what is broken, on a copy of the tree for each
"""

import ast
import copy
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT, LIST = Path(__file__).parents[1], Path(__file__).with_suffix(".tsv")
FLOW = ("tests/golden", "tests/api/test_find_duplicates.py")
WHOLE = {"chaos", "jobs", "bad_inputs", "cluster", "anywhere"}  # folders of slow tests
KINDS = ("Compare", "BoolOp", "UnaryOp", "Constant", "Return", "Expr")
LIMIT, CHOSEN = 300, "not realdata and not cluster"  # seconds of a processor, as one may never end; marks of tests
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
        case _:
            return ast.Pass() if isinstance(new, ast.Expr) and isinstance(new.value, ast.Call) else None
    return new


def places(path: Path) -> Iterator[tuple[str, str, int, str, str]]:
    """Yield (kind, path, line, old line, new line) of all that can be broken in the functions of a file."""
    lines = path.read_text().splitlines()
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))
    for node in (node for function in functions for part in function.body for node in ast.walk(part)):
        if (new := changed(node)) and node.lineno == node.end_lineno:
            line, first, end = lines[node.lineno - 1], node.col_offset, node.end_col_offset
            text = f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new)
            new_line = line[:first] + text + line[end:]
            yield type(node).__name__, str(path.relative_to(ROOT)), node.lineno, line, new_line


def draw() -> None:
    """Write ten of each kind."""
    random.seed(67)
    found = [place for path in sorted(ROOT.glob("dupq/**/*.py")) for place in places(path)]
    kinds = [sorted({place[1:] for place in found if place[0] == kind}) for kind in KINDS]
    drawn = sorted(place for kind in kinds for place in random.sample(kind, 60 // len(KINDS)))
    LIST.write_text("".join("\t".join(map(str, place)) + "\n" for place in drawn))


def tests_of(path: str) -> list[str]:
    """Return the test files of a module's name, or the three shortest that import it: none of whole jobs."""
    module = path.removesuffix(".py").replace("/", ".")
    parent, _, name = module.rpartition(".")
    imports = re.compile(rf"from {module} import|from {parent} import .*\b{name}\b")
    files = [file for file in ROOT.glob("tests/**/test_*.py") if not WHOLE.intersection(file.parts)]
    files.sort(key=lambda file: (not imports.search(file.read_text()), file.stat().st_size, file))
    return [str(one.relative_to(ROOT)) for one in [one for one in files if one.stem == f"test_{name}"] or files[:3]]


def survives(path: str, number: int, old: str, new: str) -> str:
    """Return what the tests, and then the whole flow on a small archive, say of a tree with the new line."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", "out", ".*_cache"))
        lines = (tree / path).read_text().splitlines() if (tree / path).exists() else []
        if old not in lines:
            return "gone"
        lines[min((abs(place - number), place) for place, line in enumerate(lines) if line == old)[1]] = new
        (tree / path).write_text("\n".join(lines) + "\n")
        env = os.environ | {"PYTHONPATH": f"{tree}:{tree}/papers"}
        for tests in (tests_of(path), FLOW):
            command = ["bash", "-c", f'ulimit -t {LIMIT}; exec "$@"', "-", sys.executable, "-m", "pytest", *tests]
            if subprocess.run([*command, "-qx", "-m", CHOSEN], cwd=tree, env=env, capture_output=True).returncode:
                return f"killed by {' '.join(tests)}"
    return "survived"


if __name__ == "__main__":
    if sys.argv[1] == "draw":
        draw()
    for line in LIST.read_text().splitlines()[slice(*map(int, sys.argv[2:]))] if sys.argv[1] == "try" else ():
        path, number, old, new = line.split("\t")
        print(f"{path}:{number}\t{survives(path, int(number) - 1, old, new)}\t{new.strip()}", flush=True)
