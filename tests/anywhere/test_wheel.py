"""The wheel in an empty environment: the API and the reading of runs, without Ray and without torch."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from explored_run import WORDS, build_explored_run
from packaging.requirements import Requirement

from dupq import __version__, system
from dupq.encoders.encoding import build
from dupq.encoders.saved import Fitness, SavedEncoder, save
from dupq.settings import config
from dupq.settings.sections import EncoderSettings
from dupq.text.questions import Vocabulary

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """That of dupq, and that of the papers."""
    folder = tmp_path_factory.mktemp("dist")
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    for source in (ROOT, ROOT / "papers"):
        subprocess.run(built, cwd=source, check=True, capture_output=True)
    names = (f"{name}-{__version__}-py3-none-any.whl" for name in ("dupq", "dupq_papers"))
    own, papers = map(folder.joinpath, names)
    return own, papers


@pytest.fixture(scope="module")
def wheel(wheels: tuple[Path, Path]) -> Path:
    return wheels[0]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and links to what it says that it needs: pip takes 15 seconds."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--no-compile"]
    subprocess.run([*pip, wheel], capture_output=True, check=True)
    (packages,) = folder.glob("lib/*/site-packages")
    (own,) = metadata.distributions(path=[str(packages)])
    waiting, linked = [*(own.requires or [])], set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name in linked or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        linked.add(requirement.name)
        needed = metadata.distribution(requirement.name)
        assert needed.version in requirement.specifier, requirement
        waiting += needed.requires or []
        for name in {file.parts[0] for file in needed.files or [] if file.parts[0] != ".."}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(needed.locate_file(name))))
    # of the same sources: a minute of compiling is spared
    for compiled in (ROOT / "dupq").rglob("__pycache__/*.nb[ic]"):
        target = packages / "dupq" / compiled.relative_to(ROOT / "dupq")
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(compiled, target)
    return folder / "bin"


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A finished run whose encoder can be opened."""
    found = build_explored_run(str(tmp_path))
    kind = EncoderSettings(kind="word_bag")
    network = build(kind, np.eye(len(WORDS) + 2, 2, dtype=np.float32) + np.float32(0.5), 1)
    network.tune(None)
    settings = config.load("dupq", ["text.word_form=written"]).changed(encoder=kind)
    saved = SavedEncoder(
        network,
        Vocabulary(WORDS, settings.text),
        settings,
        None,
        Fitness(questions=1, unknown_words=0.0, bodies_found=None),
        {},
    )
    save(str(tmp_path / "encoder"), saved, "run")
    return found


def test_it_holds_all_that_the_package_reads_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        described = archive.read(f"dupq-{__version__}.dist-info/METADATA").decode()
    assert {name for name in names if not name.startswith(f"dupq-{__version__}.dist-info/")} == files_of(ROOT / "dupq")
    read = ["py.typed", "clusters/prior.json", "encoders/base/encoder.npz", "settings/presets/dupq.toml"]
    read += ["report/page.html.jinja", "report/static/main.js"]
    assert {f"dupq/{name}" for name in read} < names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    for module, (_, extra) in system.PACKAGES.items():
        name = module.replace("_", "-")
        assert re.search(rf"^Requires-Dist: {name}\b.*; extra == '{extra}'$", described, re.MULTILINE), module


def files_of(package: Path) -> set[str]:
    files = (file.relative_to(package.parent) for file in package.rglob("*") if file.is_file())
    return {str(file) for file in files if "__pycache__" not in file.parts}


def test_the_papers_are_a_second_wheel_of_the_same_version(wheels: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(wheels[1]) as archive:
        names, about = set(archive.namelist()), f"dupq_papers-{__version__}.dist-info/"
        described = archive.read(f"{about}METADATA").decode()
    assert {name for name in names if not name.startswith(about)} - {"dupq_papers/LICENSE"} == files_of(
        ROOT / "papers" / "dupq_papers"
    )
    assert f"Requires-Dist: dupq[jobs]=={__version__}\n" in described


def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A program of the environment, which finds its own packages only."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, env=own)


PROGRAM = """
import importlib.util, json, sys
import dupq

titles = ["How do I bake bread?", "how do I bake bread", "Where is my bicycle?"]
found = {"groups": dupq.find_duplicates(titles).groups()}
run = dupq.open_run(sys.argv[1])
found["pairs"] = len(run.pairs.arrow(filter=[("probability", ">", 0.5)]))
found["similar"] = run.similar("oven", k=3).arrow()["rank"].to_pylist()
explained = run.explain("cs.stackexchange.com/31", "cs.stackexchange.com/32")
found["explained"] = [len(explained.edges), explained.weighed.score]
found["members"] = len(run.cluster_of("cs.stackexchange.com/31").questions)
found["decided"] = len(run.at(0.9).clusters)
found["missing"] = [name for name in ("ray", "torch", "pandas") if importlib.util.find_spec(name) is None]
try:
    run.pairs.pandas()
except dupq.DupqError as error:
    found["said"] = str(error)
print(json.dumps(found))
"""


def test_runs_are_read_and_duplicates_found_without_ray_and_torch(installed: Path, run: str) -> None:
    ended = call(installed / "python", "-c", PROGRAM, run)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["groups"] == [[0, 1]]
    assert found["pairs"] > 0
    assert found["similar"] == [1, 2, 3]
    assert found["explained"][0] == 1
    assert found["members"] == 3
    assert found["decided"] > 0
    assert found["missing"] == ["ray", "torch", "pandas"]
    assert (
        found["said"]
        == "a DataFrame of pandas needs pandas, which is not installed; in dupq's checkout: pip install '.[tables]'"
    )


@pytest.mark.parametrize(
    ("job", "options"),
    [
        ("dedup", ["--questions", "a", "--encoder", "b", "--output", "c"]),
        ("from-dump", ["--dump", "a", "--output", "b"]),
    ],
)
def test_a_job_names_the_extra_that_it_needs(installed: Path, job: str, options: list[str]) -> None:
    ended = call(installed / "dupq", job, *options)
    said = f"error: dupq {job} needs Ray, which is not installed; in dupq's checkout: pip install '.[jobs]'\n"
    assert (ended.returncode, ended.stderr) == (1, said)


def test_a_plan_a_report_and_an_export_need_no_extra(installed: Path, run: str) -> None:
    export = ["export", "--run", run, "--to", "csv", "--output", f"{run}-csv"]
    for words in (["plan", "--questions", "1e6", "--run", run], ["report", "--run", run], export):
        ended = call(installed / "dupq", *words)
        assert (ended.returncode, ended.stderr) == (0, ""), words
