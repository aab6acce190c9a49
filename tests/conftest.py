import dataclasses
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import hypothesis
import pytest
from filelock import FileLock
from trained import TrainedSample

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# a worker that waits for its next task longer than a second is ended, and the next one imports all anew
os.environ.setdefault("RAY_idle_worker_killing_time_threshold_ms", "20000")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch's: tests run side by side, and threads would wait for each other

ROOT = Path(__file__).parents[1]
SEED = int(os.environ.get("DUPQ_TEST_SEED", "1"))

# What numba compiles, it compiles in the first example that calls it. Examples are the same unless a seed is set.
_EXAMPLES = 200 if "DUPQ_FULL" in os.environ else 40  # a test, unless it says how many
hypothesis.settings.register_profile(
    "compiled", deadline=None, derandomize="DUPQ_TEST_SEED" not in os.environ, max_examples=_EXAMPLES
)
hypothesis.settings.load_profile("compiled")


def pytest_report_header() -> str:
    return f"seed: {SEED} (DUPQ_TEST_SEED)"


# folders, whose files end last if begun late
_LONGEST = ("cluster", "jobs", "chaos", "stages", "job", "api", "serve", "report", "anywhere", "dump")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process waits for another at the end."""
    if "DUPQ_FULL" not in os.environ:
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason="make full runs it (DUPQ_FULL=1): a sample of its kind is run"))
    ranks = {folder: rank for rank, folder in enumerate(_LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.relative_to(ROOT).parts[1], len(_LONGEST)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name what fails at once: a session that is cut off prints no summary."""
    if report.failed:
        print(f"\nFAILED {report.nodeid} ({report.when}): {str(report.longrepr).splitlines()[-1][:200]}")


@pytest.fixture(scope="module")
def browser(lacking: Callable[[str], NoReturn]) -> Iterator[Any]:
    """Chromium, by playwright."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None or importlib.util.find_spec("playwright") is None:
        lacking("needs chromium (apt-get install chromium) and playwright (pip install playwright)")
    playwright = importlib.import_module("playwright.sync_api")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def axe(lacking: Callable[[str], NoReturn]) -> Any:
    if importlib.util.find_spec("axe_playwright_python") is None:
        lacking("axe-playwright-python is not installed (pip install axe-playwright-python)")
    return importlib.import_module("axe_playwright_python.sync_playwright").Axe()


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    """Chance for tests that kill at random moments: the same each time, unless a seed is set.

    Each test has its own: with one seed for all, they would all be disturbed a like way into their work.
    """
    return random.Random(f"{SEED}-{request.node.nodeid}")


@pytest.fixture(scope="session")
def lacking() -> Callable[[str], NoReturn]:
    """Ends a test that lacks a program: it fails with CI=true, where .ci/run has installed them, else it is skipped."""

    def end(reason: str) -> NoReturn:
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)

    return end


@pytest.fixture
def dupq(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls a command of dupq in this process, and returns its exit code and what it printed, on stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        from dupq.cli import main

        with pytest.raises(SystemExit) as ended:
            main(list(map(str, words)))
        return int(ended.value.code or 0), *capsys.readouterr()

    return call


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = Path(os.environ.get("DUPQ_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not there (set DUPQ_SHARED_DATA)")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _without_waiting_for_the_disk() -> Iterator[None]:
    """In this process; no test cuts the power. Jobs and Ray's workers wait for it."""
    from dupq import local_files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_files, "make_durable", lambda path: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _without_the_default_reranker() -> Iterator[None]:
    """In this process, also for fixtures: the model takes seconds and 0.9 GB. Processes are told --reranker none."""
    from dupq.api import duplicates
    from dupq.pipelines import opening

    with pytest.MonkeyPatch.context() as patch:
        for module in (duplicates, opening):
            patch.setattr(module, "default_reranker", lambda: None)
        yield


@pytest.fixture(autouse=True)
def _reads(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that is marked `reads` has it, but not the fixtures of a wider scope that it shares with others."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("reads"):
            from dupq.api import duplicates
            from dupq.encoders.sentence_models import default_reranker
            from dupq.pipelines import opening

            for module in (duplicates, opening):
                patch.setattr(module, "default_reranker", default_reranker)
        yield


@pytest.fixture(scope="session")
def ray_started() -> None:
    """One Ray for the whole test session; started again if a test shut it down."""
    from dupq.job import cluster

    cluster.connect("local")


@pytest.fixture
def quick(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tasks run in this process, but in tests that are marked `ray`."""
    if request.node.get_closest_marker("ray"):
        request.getfixturevalue("ray_started")
        yield
    else:
        from inline import without_ray  # here, as it imports numpy, which reads OMP_NUM_THREADS

        with without_ray():
            yield


@pytest.fixture
def fresh_workers(ray_started: None) -> None:
    """Ray with workers that did nothing yet, for tests of memory: a used one keeps what earlier tests' work left."""
    import ray

    from dupq.job import cluster

    ray.shutdown()
    cluster.connect("local")


@pytest.fixture(scope="session")
def of_all_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the whole test session, however many processes it has."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def trained_sample(of_all_processes: Path) -> TrainedSample:
    """One for all processes of a test session: the first that asks for it makes it."""
    from inline import without_ray
    from riddles.grammar import write_sample

    from dupq.encoders.saved import encoder_at

    folder = of_all_processes / "trained-sample"
    archive, done = folder / "archive", folder / "done"
    with FileLock(folder.with_suffix(".lock")):
        sample = write_sample(folder / "dump", questions=1200)
        if not done.exists():
            with without_ray():
                _train_on(str(sample.archive), archive, folder / "encoder")
            done.touch()
    tables = (str(archive), f"{archive}/questions", f"{archive}/links")
    return TrainedSample(str(sample.archive), str(sample.truth), *tables, encoder_at(str(folder / "encoder")))


@pytest.fixture(scope="session")
def small_sample(trained_sample: TrainedSample, tmp_path_factory: pytest.TempPathFactory) -> TrainedSample:
    """300 of its questions in two shards, those with links first: for what changes no more than an argument."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    links, questions = pq.read_table(trained_sample.links), pq.read_table(trained_sample.questions)
    ends = pa.concat_arrays([links[name].combine_chunks() for name in ("question_id", "related_id")])
    linked_first = pc.array_sort_indices(pc.is_in(questions["question_id"], value_set=ends), order="descending")
    chosen = questions.take(linked_first.slice(0, 300)).sort_by("question_id").drop_columns(["site"])
    archive = tmp_path_factory.mktemp("small")
    folder = archive / "questions" / "site=sample.stackexchange.com"
    folder.mkdir(parents=True)
    for number in range(2):
        pq.write_table(chosen.slice(150 * number, 150), folder / f"part-0000{number}.parquet")
    truth = pd.read_csv(trained_sample.truth, sep="\t")
    is_there = truth[["question_id", "related_id"]].isin(chosen["question_id"].to_pylist()).all(axis=1)
    truth[is_there].to_csv(archive / "truth.tsv", sep="\t", index=False)
    return dataclasses.replace(trained_sample, questions=f"{archive}/questions", truth=f"{archive}/truth.tsv")


def _train_on(dump: str, archive: Path, encoder: Path) -> None:
    from encoder_settings import QUICK_LEARNER

    from dupq.pipelines.ingest import IngestJob, ingest
    from dupq.pipelines.train import TrainingJob, train

    ingest(IngestJob((dump,), str(archive), assignments=("ingest.shard_rows=400",)))
    given = f"{archive}/questions", f"{archive}/links", str(encoder)
    settings = (*QUICK_LEARNER, "training.epochs=6", "encoder.units=100")
    train(TrainingJob(*given, preset="bogdanova-max", assignments=settings))


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket (its s3:// URI) on a real server (moto) on loopback, for this process and its Ray workers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    log = tmp_path_factory.mktemp("moto") / "log"
    command = [str(Path(sys.executable).parent / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    settings = {"AWS_ENDPOINT_URL": endpoint, "AWS_DEFAULT_REGION": "us-east-1"}
    settings |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test")
    with pytest.MonkeyPatch.context() as patch, log.open("wb") as output:
        for name, value in settings.items():
            patch.setenv(name, value)
        server = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _await(endpoint)
            import boto3

            boto3.client("s3").create_bucket(Bucket="dupq")
            yield "s3://dupq"
        finally:
            server.terminate()
            server.wait()


def _await(endpoint: str) -> None:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=1)
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"moto did not start at {endpoint}")
