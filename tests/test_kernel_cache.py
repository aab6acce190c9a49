"""What numba keeps on disk goes with the code that it was made from, in whichever file that is."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pytest
from numba.core.caching import FunctionCache
from scipy import sparse

from dupq import kernel_cache
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.exact import side_of

PACKAGE = Path(kernel_cache.__file__).parent
HELPER = """
from dupq.kernel_cache import numba

FACTOR = 10

@numba.njit(nogil=True, cache=True, inline="always")
def grown(value):
    return FACTOR * (value + 1)
"""
CALLER = """
from dupq.kernel_cache import numba
from dupq import helper

grown = helper.grown

@numba.njit(nogil=True, cache=True)
def answer(value):
    return grown(value) - 1
"""
ASK = "from dupq.caller import answer; print(answer(1), sum(answer.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return small_package(tmp_path)


def small_package(parent: Path) -> Path:
    """A small dupq: a kernel, which uses one of another file."""
    folder = parent / "dupq"
    folder.mkdir()
    for name in ("__init__.py", "errors.py", "kernel_cache.py", "local_files.py"):
        shutil.copy(PACKAGE / name, folder / name)
    sources = {"helper": HELPER, "caller": CALLER, "report": "COLOUR = 'red'\n"}
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    return folder


def asked(package: Path, cache: Path | None) -> tuple[int, int]:
    """The answer of a new process, and how many kernels it did not have to compile."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment |= {"PYTHONPATH": str(package.parent)} | ({"NUMBA_CACHE_DIR": str(cache)} if cache else {})
    ended = subprocess.run(
        [sys.executable, "-c", ASK], capture_output=True, text=True, check=True, env=environment, cwd=package.parent
    )
    answer, hits = ended.stdout.split()
    return int(answer), int(hits)


def test_an_edit_of_another_file_that_a_kernel_uses_is_seen(package: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert asked(package, cache) == (19, 0)
    (package / "report.py").write_text("COLOUR = 'blue'\n")
    (package / "caller.py").touch()
    assert asked(package, cache) == (19, 1)  # what it does not use may change
    (package / "helper.py").write_text(HELPER.replace("+ 1", "+ 2").replace("10", "100"))
    assert asked(package, cache) == (299, 0)
    assert len(list(cache.rglob("*.nb?"))) == 2  # nothing piles up


def test_the_code_of_another_environment_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = kernel_cache.source_stamp()[:16]
    names = {f"module.f-dupq-{source}.{made_by}.nbi" for source in (stamp, "earlier") for made_by in ("a", "b")}
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(kernel_cache, "_MADE_BY", "a")
    kernel_cache._remove_others(tmp_path)
    assert names - {file.name for file in tmp_path.iterdir()} == {"module.f-dupq-earlier.a.nbi"}


def test_the_cache_of_a_class_that_has_another_name_now_is_not_opened(package: Path) -> None:
    """numba's index names the classes of arguments; one that is gone is an error where it is read.

    Without a folder of its own the cache is beside the source.
    """
    pair = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    value: int\n"
    kernel = CALLER.replace("def answer(value)", "def of_pair(pair)").replace("grown(value)", "grown(pair.value)")
    for name in ("Pair", "Couple"):
        (package / "caller.py").write_text(
            pair.replace("Pair", name)
            + kernel
            + f"answer = lambda value: of_pair({name}(value))\nanswer.stats = of_pair.stats\n"
        )
        assert asked(package, None) == (19, 0)
        assert len(list(package.rglob("*.nb?"))) == 2


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_what_compiled_functions_use_is_in_files_whose_edits_are_seen() -> None:
    files = set(kernel_cache.compiled_files())
    for path in files:
        tree = ast.parse(path.read_bytes())
        assigned = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in ast.walk(node)
            if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
        }
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
        waiting = [line for function in functions if "njit" in ast.dump(function) for line in function.body]
        used: set[str] = set()
        while waiting:  # names in compiled functions, and those that constants with such names are made from
            names = {node.id for node in ast.walk(waiting.pop()) if isinstance(node, ast.Name)}
            waiting += [assigned[name] for name in names - used if name in assigned]
            used |= names
        imported = [
            node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "dupq.kernel_cache"
        ]
        for node in imported:
            folder = PACKAGE.parent / str(node.module).replace(".", "/")
            for alias in node.names:
                if str(node.module).startswith("dupq") and (alias.asname or alias.name) in used:
                    assert files & {folder.with_suffix(".py"), folder / f"{alias.name}.py"}, (path, alias.name)


def test_every_compiled_function_is_cached_so() -> None:
    for source in sources():
        text = source.read_text()
        if re.search(r"\bnjit\b|\bnb\.jit\b|vectorize\(", text) and source != Path(kernel_cache.__file__):
            assert re.search(r"^from dupq\.kernel_cache import .*\bnumba\b", text, re.MULTILINE), source
            assert not re.search(r"^\s*import numba|^\s*from numba import .*jit", text, re.MULTILINE), source


def test_arrays_of_any_kind_are_of_one_type_for_compiled_functions() -> None:
    written = np.arange(6)
    of_arrow, column = pa.array(written).to_numpy(), np.arange(12).reshape(6, 2)[:, 0]
    assert {of_arrow.flags.writeable, column.flags.c_contiguous} == {False}
    kinds = {numba.typeof(kernel_cache.read_only(array)) for array in (written, of_arrow, column)}
    assert len(kinds) == 1
    assert np.array_equal(kernel_cache.read_only(column), [0, 2, 4, 6, 8, 10])
    assert written.flags.writeable


def test_a_block_without_words_has_the_types_of_one_with_words() -> None:
    bags = (sparse.csr_array(words, dtype=np.float32) for words in ([[0, 0], [0, 0]], [[0, 1], [2, 0]]))
    sides = (
        side_of(Embeddings(np.arange(2), np.ones((2, 3), np.float32), bag), Measure("cosine", 0.5, 0.5)) for bag in bags
    )
    one, other = (numba.typeof(side) for side in sides)
    assert one == other


def test_functions_of_others_are_cached_as_ever() -> None:
    assert type(numba.njit(cache=True)(sources)._cache) is FunctionCache


def test_kernels_do_not_load_ray_and_the_package_loads_no_numba() -> None:
    program = "import sys, dupq, dupq.settings.config; assert 'numba' not in sys.modules; import dupq.kernel_cache"
    subprocess.run([sys.executable, "-c", f"{program}; assert 'ray' not in sys.modules"], check=True)
