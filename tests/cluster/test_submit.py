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


UPLOAD = """
import sys

from dupq import storage

for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    for file in storage.list_files(source):
        storage.write_bytes(f"{target}/{file.relative}", storage.read_bytes(file.uri))
"""
LOOK = """
import json
import sys

import dupq
from dupq import storage

run = dupq.open_run(sys.argv[1])
rows = {name: len(getattr(run, name)) for name in ("questions", "clusters", "pairs", "cluster_stats")}
print(json.dumps({**rows, "uri": run.uri, "success": storage.exists(f"{run.uri}/_SUCCESS")}))
"""


def test_the_nightly_job_runs_on_the_cluster_with_all_data_on_s3(
    cluster: Launcher, bucket: str, small_sample: Any
) -> None:
    given = {name: getattr(small_sample, name) for name in ("questions", "links", "encoder")}
    cluster.python(UPLOAD, *(place for name, folder in given.items() for place in (folder, f"{bucket}/{name}")))
    options = [word for name in given for word in (f"--{name}", f"{bucket}/{name}")]
    done = cluster.submit("jobs/dedup.py", *options, "--reranker", "none", "--output", f"{bucket}/runs")
    assert done.returncode == 0, done.stdout
    assert "starting Ray" not in done.stdout
    found = json.loads(cluster.python(LOOK, f"{bucket}/runs"))
    assert found["uri"].startswith(f"{bucket}/runs/")
    assert found["success"]
    assert found["clusters"] == found["questions"] == pq.read_table(small_sample.questions).num_rows
    assert found["pairs"] > 0
    assert found["cluster_stats"] > 0
    assert f"OPEN      {found['uri']}/report.html" in done.stdout


def test_a_wrong_key_is_one_line_of_what_is_wrong(cluster: Launcher, bucket: str, tmp_path: Path) -> None:
    script, job = tmp_path / "wrong_key.py", (cluster.checkout / "jobs/dedup.py").read_text()
    script.write_text(f"import os\n\nos.environ['AWS_SECRET_ACCESS_KEY'] = 'wrong'\n{job}")
    given = [word for name in ("questions", "encoder", "output") for word in (f"--{name}", f"{bucket}/{name}")]
    done = cluster.submit(script, *given)
    assert done.returncode != 0
    (error,) = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert "wrong key (SignatureDoesNotMatch)" in error
    assert "Traceback" not in done.stdout


def test_ray_up_brings_what_has_changed_and_only_what_git_would_keep(cluster: Launcher, which_package: Path) -> None:
    with (cluster.checkout / "dupq/__init__.py").open("a") as module:
        module.write('\nCHANGED = "anew"\n')
    for folder in (".venv", ".git", "out"):
        (cluster.checkout / folder).mkdir()
        (cluster.checkout / folder / "large").touch()
    cluster.up()
    done = cluster.submit(which_package)
    assert done.returncode == 0, done.stdout
    assert f"the driver has {cluster.head}/environment/" in done.stdout
    assert "anew" in done.stdout
    assert f"a worker has {cluster.head}/environment/" in done.stdout
    mounted = {path.name for path in (cluster.head / "dupq").iterdir()}
    assert {"dupq", "pyproject.toml", "requirements.lock"} <= mounted
    assert not {".venv", ".git", "out"} & mounted
