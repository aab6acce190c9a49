import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray
from ray._private.utils import check_version_info
from waiting import await_it

from dupq.errors import ClusterError, SettingError
from dupq.job import cluster, progress
from dupq.job.cluster import failure_at
from dupq.job.tasks import result_of, run_tasks, start, start_stream

ROOT = Path(__file__).parents[2]
ADDRESS, TOKEN = "127.0.0.3", "7" * 64


ASK = """
import sys
from ray._raylet import GcsClient

print(len(GcsClient(address=sys.argv[1]).get_all_node_info()))
"""


def asked_by(address: str, settings: dict[str, str]) -> subprocess.CompletedProcess:
    """A process that has only `settings` of Ray, and asks the head at `address` for its number of nodes."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {**others, **settings, "RAY_py_gcs_connect_timeout_s": "1"}
    return subprocess.run(
        [sys.executable, "-c", ASK, address], env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("source", ["--ray", "RAY_ADDRESS"])
def test_what_is_no_address_of_a_head_is_one_line(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "_init", lambda wanted: pytest.fail(f"{wanted} was given to Ray"))
    for address in (
        *("http://x", "https://x:80", "ray://x:10001", "s3://x", "x/y:6379", "nowhere", "127.0.0.1", "AUTO", "a b:1"),
        *(":", ":1", "x:", "x:y", "x:-1", f"x:{'9' * 5000}", "x:\u0661", "x\ny:1", "[::1]:x"),
    ):
        monkeypatch.setenv("RAY_ADDRESS", address if source == "RAY_ADDRESS" else "auto")
        with pytest.raises(SettingError) as caught:
            cluster.connect(address if source == "--ray" else None)
        assert str(caught.value).startswith(f"{source} {address!r}: no address of a Ray cluster; 'auto'")
        assert "\n" not in str(caught.value)
    for address in ("x:65536", "10.0.0..1:6379", f"{'x' * 64}:1"):
        assert failure_at(address, 1) is not None


def test_a_cluster_of_another_ray_or_python_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(address: str) -> None:
        check_version_info({"ray_version": "2.0.0", "python_version": "3.9.1"}, "node 10.0.0.1")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "_init", init)
    with pytest.raises(ClusterError, match=r"^--ray auto: Version mismatch: .* Ray: 2\.0\.0 Python: 3\.9\.1 .*\d$"):
        cluster.connect("auto")


def test_no_cluster_where_one_is_named(tmp_path: Path) -> None:
    """In another process, since the job does not wait for its threads."""
    (tmp_path / "faq.csv").write_text("id,title\n1,How to bake\n")
    command = [sys.executable, str(ROOT / "jobs" / "ingest.py"), f"--dump={tmp_path}/faq.csv", "--ray=127.0.0.1:1"]
    ended = subprocess.run([*command, f"--output={tmp_path}/out"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (6, 1), ended.stderr
    assert ended.stderr.startswith("error: no Ray cluster at 127.0.0.1:1 (")
    assert not (tmp_path / "out").exists()


def test_without_ray_tasks_run_in_this_process_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_here", None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(progress, "tell", lambda *step: told.append(step))
    cluster.connect("none")
    done: list[int] = []

    def work(number: int) -> dict[str, int]:
        assert told[-1] == ("some", min(number, 5), 5)
        done.append(number)
        return {"rows_out": os.getpid()}

    report = run_tasks("some", work, [(number,) for number in range(5)])
    assert (done, report.tasks, report.rows_out) == ([*range(5)], 5, 5 * os.getpid())
    assert told[-1] == ("some", 5, 5)
    assert result_of(start(work, 7)) == {"rows_out": os.getpid()}
    assert [result_of(one) for one in start_stream(lambda: iter("ab"))] == ["a", "b"]
    assert cluster.gpus() == 0
    with pytest.raises(ClusterError, match="fit needs 2 processes side by side, and --ray none has one"):
        cluster.check_fits("fit", 1, 0, 2)


def test_a_local_ray_listens_on_loopback_only(ray_started: None) -> None:
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [(each.name(), place.laddr.ip) for each in processes for place in _sockets(each)]
    assert "gcs_server" in dict(listening)
    assert "raylet" in dict(listening)
    assert {ip for _, ip in listening} <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def _sockets(process: psutil.Process) -> list:
    return [place for place in process.net_connections() if place.status == psutil.CONN_LISTEN]


def test_a_local_ray_answers_nobody_without_its_token(ray_started: None) -> None:
    address = ray.get_runtime_context().gcs_address
    ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.environ["RAY_AUTH_TOKEN"]}
    assert asked_by(address, ours).stdout == "1\n"
    for other in ({"RAY_AUTH_MODE": "disabled"}, {**ours, "RAY_AUTH_TOKEN": "7" * 64}):
        refused = asked_by(address, other)
        assert refused.returncode == 1
        assert "AuthenticationError" in refused.stderr


@pytest.fixture
def head() -> Iterator[subprocess.Popen]:
    """A cluster of one node with a token, on an address of loopback that is not the one of a local Ray."""
    command = f"start --head --block --node-ip-address={ADDRESS} --port=26379 --num-cpus=1"
    small = "--object-store-memory=100000000 --include-dashboard=false --disable-usage-stats"
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    started = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", *command.split(), *small.split()],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield started
    for process in [*psutil.Process(started.pid).children(recursive=True), started]:
        process.kill()
    started.wait()


JOB = """
import sys, time
from dupq import cli, options
from dupq.job import cluster

cluster._BETWEEN_SECONDS, cluster._PATIENCE_SECONDS = 1, 3

def started(file):
    open(file, "w").close()
    time.sleep(300)

def job():
    cluster.connect(sys.argv[1])
    started(sys.argv[2])

parser = options.Parser()
parser.set_defaults(do=lambda _: job(), job="dedup")
cli._end(parser, [])
"""


def test_a_job_whose_head_is_lost_ends_with_one_line(head: subprocess.Popen, tmp_path: Path) -> None:
    """While it computes; one that waits for Ray is in tests/chaos/test_ends.py."""
    assert await_it(lambda: failure_at(f"{ADDRESS}:26379", 1) is None)
    (tmp_path / "job.py").write_text(JOB)
    marker = tmp_path / "started"
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    command = [sys.executable, str(tmp_path / "job.py"), f"{ADDRESS}:26379", str(marker)]
    job = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert await_it(marker.exists)
    [gcs] = [each for each in psutil.Process(head.pid).children(recursive=True) if each.name() == "gcs_server"]
    gcs.kill()
    job.wait(120)
    errors = job.communicate()[1]
    assert job.returncode == 6, errors
    assert len(errors.splitlines()) == 1, errors
    assert errors.startswith("error: the head of the Ray cluster has not answered for 3 s")
