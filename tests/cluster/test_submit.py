"""`ray up`, `ray submit` and `ray down`, really run: an sshd, the launcher, a Ray head, the nightly job."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from machine import Launcher

pytestmark = pytest.mark.cluster

WHICH_PACKAGE = """
import ray

import dupq


@ray.remote
def imported():
    import dupq

    return dupq.__file__


ray.init(logging_level="ERROR")
print("the driver has", dupq.__file__, getattr(dupq, "CHANGED", "as it was"))
print("a worker has", ray.get(imported.remote()))
"""


@pytest.fixture
def which_package(tmp_path: Path) -> Path:
    script = tmp_path / "which_package.py"
    script.write_text(WHICH_PACKAGE)
    return script


def test_the_nightly_job_runs_on_the_cluster(cluster: Launcher, trained_sample: Any, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = cluster.submit(
        "jobs/dedup.py",
        *("--questions", trained_sample.questions, "--links", trained_sample.links),
        *("--encoder", trained_sample.encoder, "--output", runs),
    )
    assert done.returncode == 0, done.stdout
    assert "starting Ray" not in done.stdout
    run = Path(json.loads((runs / "latest.json").read_text())["run"])
    assert run.parent == runs
    for name in ("_SUCCESS", "manifest.json", "config.json", "metrics.json", "report.html"):
        assert (run / name).is_file(), name
    questions = pq.read_table(trained_sample.questions).num_rows
    assert pq.read_table(run / "clusters").num_rows == questions
    assert pq.read_table(run / "pairs").num_rows > 0
    assert pq.read_table(run / "cluster_stats").num_rows > 0
    assert f"report            {run}/report.html" in done.stdout


def test_a_failing_job_fails_ray_submit_and_says_why_in_one_line(
    cluster: Launcher, trained_sample: Any, tmp_path: Path
) -> None:
    missing = tmp_path / "no-encoder"
    done = cluster.submit(
        "jobs/dedup.py",
        *("--questions", trained_sample.questions, "--encoder", missing, "--output", tmp_path / "runs"),
    )
    assert done.returncode != 0
    (error,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert str(missing) in error
    assert "Traceback" not in done.stdout
    assert not (tmp_path / "runs").exists()


def test_driver_and_workers_have_the_package_that_was_mounted(cluster: Launcher, which_package: Path) -> None:
    done = cluster.submit(which_package)
    assert done.returncode == 0, done.stdout
    assert f"the driver has {cluster.head}/environment/" in done.stdout
    assert f"a worker has {cluster.head}/environment/" in done.stdout


def test_ray_up_brings_what_has_changed_and_only_what_git_would_keep(cluster: Launcher, which_package: Path) -> None:
    with (cluster.checkout / "dupq/__init__.py").open("a") as module:
        module.write('\nCHANGED = "anew"\n')
    for folder in (".venv", ".git", "out"):
        (cluster.checkout / folder).mkdir()
        (cluster.checkout / folder / "large").touch()
    cluster.up()
    assert "anew" in cluster.submit(which_package).stdout
    mounted = {path.name for path in (cluster.head / "dupq").iterdir()}
    assert {"dupq", "pyproject.toml", "requirements.lock"} <= mounted
    assert not {".venv", ".git", "out"} & mounted
