"""Three nights by Ray's job server, as KubeRay and `ray job submit` start them: its client, a Ray head, S3 by moto."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from riddles.grammar import write_sample

import dupq
from dupq import storage
from dupq.errors import GateError
from dupq.runs.figures import FILE

pytestmark = [pytest.mark.cluster, pytest.mark.full, pytest.mark.timeout(3_600)]
NIGHT = f"bash {Path(__file__).parents[2] / 'examples/cluster/night.sh'}"
KILLED = 128 + signal.SIGKILL
FAST = "--reranker none --set calibration.precision=0.5"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class JobServer:
    """A head with a job server, and its client."""

    def __init__(self, address: str, token: str) -> None:
        from ray.job_submission import JobSubmissionClient

        self.client = JobSubmissionClient(address, headers={"Authorization": f"Bearer {token}"})

    def submit(self, first: bool = False, more: str = "") -> str:
        variables = {"MORE": f"{FAST} {more}"}
        return self.client.submit_job(entrypoint=NIGHT + " first" * first, runtime_env={"env_vars": variables})

    def until(self, job: str, happened: Callable[[str], bool]) -> None:
        """Wait until the job has ended, or something is true of its lines."""
        for _ in range(6_000):
            if self.client.get_job_status(job).is_terminal() or happened(self.client.get_job_logs(job)):
                return
            time.sleep(0.1)
        raise AssertionError(self.client.get_job_logs(job))

    def ended(self, job: str) -> tuple[str, int | None, str]:
        """How the job ended: its status, its exit code, its lines."""
        self.until(job, lambda _: False)
        about = self.client.get_job_info(job)
        return str(about.status), about.driver_exit_code, self.client.get_job_logs(job)


@pytest.fixture
def server(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobServer]:
    port, dashboard, session = free_port(), free_port(), f"/tmp/dupq-{os.getpid()}"
    token, programs = secrets.token_hex(32), Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "BUCKET": f"{s3}/nights",
        "MAX_CHANGE": "1",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    environment.pop("RAY_ADDRESS", None)
    command = [programs / "ray", "start", "--head", "--block", "--num-cpus=2", "--include-dashboard=true"]
    command += [f"--port={port}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={free_port()}"]
    command += ["--object-store-memory=300000000", f"--temp-dir={session}"]
    log = tmp_path_factory.mktemp("head") / "log"
    with log.open("wb") as output:
        head = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        yield _answering(f"http://127.0.0.1:{dashboard}", token, head, log)
    finally:
        head.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)
        head.wait()
        shutil.rmtree(session, ignore_errors=True)


def _answering(address: str, token: str, head: "subprocess.Popen[bytes]", log: Path) -> JobServer:
    for _ in range(600):
        assert head.poll() is None, log.read_text()
        with contextlib.suppress(ConnectionError):
            return JobServer(address, token)
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def test_three_nights(server: JobServer, s3: str, tmp_path: Path) -> None:
    dumps, runs = f"{s3}/nights/dumps", f"{s3}/nights/runs"
    upload(200, tmp_path, dumps)
    status, code, lines = server.ended(server.submit(first=True))
    assert (status, code) == ("SUCCEEDED", 0), lines
    first = dupq.open_run(runs)
    assert f"OPEN      {first.uri}/report.html" in lines

    upload(300, tmp_path, dumps)
    night = server.submit()
    server.until(night, lambda lines: "near_duplicates " in lines)
    os.kill(int(server.client.get_job_info(night).driver_info.pid), signal.SIGKILL)
    status, code, lines = server.ended(night)
    assert (status, code) == ("FAILED", KILLED), lines
    assert f"exit code {KILLED}" in server.client.get_job_info(night).message
    assert "killed" in lines
    assert dupq.open_run(runs).uri == first.uri

    status, code, lines = server.ended(server.submit())
    assert (status, code) == ("SUCCEEDED", 0), lines
    assert "finished before" in lines
    second = dupq.open_run(runs)
    assert second.manifest["inputs"]["previous"] == first.uri
    assert second.metrics["questions"] == 300

    told = storage.read_bytes(f"{runs}/{FILE}").decode()
    assert f"dupq_questions {second.metrics['questions']}\n" in told

    upload(350, tmp_path, dumps)
    status, code, lines = server.ended(server.submit(more="--max-cluster 1"))
    assert (status, code) == ("FAILED", GateError.EXIT_CODE), lines
    assert "error: --max-cluster 1: the largest cluster has" in lines
    assert "the run is complete but not marked as succeeded" in lines
    assert dupq.open_run(runs).uri == second.uri
    assert storage.read_bytes(f"{runs}/{FILE}").decode() == told


def upload(questions: int, folder: Path, target: str) -> None:
    archive = write_sample(folder / str(questions), questions=questions).archive
    storage.write_bytes(f"{target}/{archive.name}", archive.read_bytes())
