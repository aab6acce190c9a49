"""The versions that pyproject.toml promises: each environment runs whole.py. `make test-lowest` calls this.

    python tests/anywhere/lowest.py FOLDER

- the lowest version of everything that pyproject.toml names, for the jobs, the tables and the API;
- the locked versions with each pyarrow since the lowest: they must decide alike;
- each Python in PYTHONS (by default those newer ones that PATH has), with the wheel alone: find_duplicates.

torch is the locked version everywhere: older builds for CPUs are not on the package index, and those that are there
bring gigabytes for GPUs. FOLDER keeps the environments; it takes 3 GB, and some ten minutes the first time.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYARROWS = ("23.0.1", "24.0.0", "25.0.1", "26.0.1")
NEWER = ("python3.12", "python3.13", "python3.14")
FIND = "import dupq; assert dupq.find_duplicates(['Bake bread?', 'bake bread', 'A bicycle']).groups() == [[0, 1]]"


def call(*words: str | Path, **environment: str) -> str:
    """What a program prints; it fails if the program does, with all that it said."""
    ended = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, env=os.environ | environment, cwd=ROOT
    )
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def runs(python: str) -> bool:
    """Whether PATH has such an interpreter, and no more than a shim of that name."""
    return shutil.which(python) is not None and not subprocess.run([python, "-c", ""], capture_output=True).returncode


def environment(folder: Path, *requirements: str | Path, python: str = sys.executable) -> Path:
    """The interpreter of an environment with some requirements of pip, made once."""
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        call(python, "-m", "venv", folder)
        call(folder / "bin" / "pip", "install", "--quiet", *requirements)
        (folder / "ready").touch()
    return folder / "bin" / "python"


def lowest(folder: Path) -> Path:
    """The interpreter of the environment with the lowest versions."""
    uv = environment(folder / "uv", "uv").with_name("uv")
    pins = folder / "lowest.txt"
    asked = ("--extra", "jobs", "--extra", "tables", "-c", "requirements-torch.lock", "--no-emit-package", "torch")
    call(uv, "pip", "compile", "pyproject.toml", *asked, "--resolution", "lowest-direct", "-q", "-o", pins)
    python = environment(folder / "lowest", "pip")
    call(python, "-m", "pip", "install", "--quiet", "-r", pins, "-r", "requirements-torch.lock")
    return python


def whole(python: str | Path, cache: Path, *first: Path) -> dict[str, str]:
    """What whole.py says with an interpreter, with packages in some folders in place of its own."""
    paths = os.pathsep.join(map(str, (*first, ROOT)))
    with tempfile.TemporaryDirectory(prefix="dupq-") as work:
        said = call(python, ROOT / "tests/anywhere/whole.py", work, PYTHONPATH=paths, NUMBA_CACHE_DIR=str(cache))
    found: dict[str, str] = json.loads(said.splitlines()[-1])
    print(found, flush=True)
    return found


def main(folder: Path) -> None:
    """Try them all."""
    print("the lowest versions:", end=" ")
    whole(lowest(folder), folder / "compiled-lowest")
    decided = set()
    for version in PYARROWS:
        overlay = folder / f"pyarrow-{version}"
        if not overlay.exists():
            call(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", overlay, f"pyarrow=={version}")
        print("locked, with", end=" ")
        found = whole(sys.executable, folder / "compiled", overlay)
        assert found["pyarrow"] == version
        decided.add((found["pairs"], found["clusters"]))
    assert len(decided) == 1, "the versions of pyarrow decide differently"
    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    wheel = next(folder.glob("dupq-*.whl"))
    for name in os.environ["PYTHONS"].split() if "PYTHONS" in os.environ else filter(runs, NEWER):
        version = call(name, "-c", "import sys; print('{}.{}.{}'.format(*sys.version_info))").strip()
        python = environment(folder / f"python-{version}", wheel, python=name)
        call(python, "-c", FIND, NUMBA_CACHE_DIR=str(folder / f"compiled-{version}"))
        print(f"Python {version}: find_duplicates")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
