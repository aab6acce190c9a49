"""A run of dedup on S3, each of whose requests may fail: it ends well, or in one line, and a rerun gives its bytes.

The server is real (moto), behind a proxy that does the harm.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from disturbed import Moment, attempt, differing, latest, tables_of
from fault_proxy import Fault, FaultProxy
from moments import Moments
from small_archive import Small, job_of, undisturbed

from dupq import storage
from dupq.errors import StorageError
from dupq.pipelines.dedup import DedupJob, dedup

PASSING = {
    "throttled": Fault("status", times=3),
    "reset": Fault("reset", times=3),
    "lost": Fault("lost", times=3),
    "truncated": Fault("truncated", times=3, method="GET"),
    "late": Fault("slow", times=1, seconds=2.5),
}
LASTING = {
    "no right": Fault("status", times=1, status=403, code="AccessDenied"),
    "expired": Fault("status", times=1, status=400, code="ExpiredToken"),
}


@pytest.fixture(scope="module")
def proxy(s3: str) -> Iterator[FaultProxy]:
    with pytest.MonkeyPatch.context() as patch, FaultProxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        patch.setenv("AWS_ENDPOINT_URL", proxy.address)
        patch.setenv("DUPQ_S3_PATIENCE_SECONDS", "60")
        patch.setenv("DUPQ_S3_READ_SECONDS", "2")  # then an answer counts as lost
        yield proxy


@pytest.fixture(scope="module")
def inputs(small: Small, s3: str, proxy: FaultProxy) -> str:
    folder = small.folder / "inputs"
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        storage.write_bytes(f"{s3}/chaos/inputs/{file.relative_to(folder)}", file.read_bytes())
    return f"{s3}/chaos/inputs"


class Whole(NamedTuple):
    """A run that nothing disturbs."""

    requests: int
    tables: dict[str, bytes]


@pytest.fixture(scope="module")
def whole(small: Small, inputs: str, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    job, folder = job_of(inputs, f"{inputs}-whole"), tmp_path_factory.mktemp("whole")
    proxy.requests.clear()
    undisturbed(functools.partial(dedup, job), folder)
    requests, tables = proxy.count(), tables_of(latest(job.output))
    # which pairs are reviewed is drawn by the run's id, and S3 has other checksums than a disk
    assert differing(tables, small.tables) == ["review.tsv"]
    return Whole(requests, tables)


def test_a_request_that_fails_and_succeeds_when_it_is_made_again(
    inputs: str, whole: Whole, proxy: FaultProxy, moments: Moments, tmp_path: Path
) -> None:
    for fault, number in moments.of(itertools.product(PASSING, range(whole.requests)), times=2, most=150):
        proxy.faults = [dataclasses.replace(PASSING[fault], after=number)]
        again(job_of(inputs, f"{inputs}-{fault}-{number}"), whole, tmp_path)
        proxy.faults = []


def test_a_request_that_is_refused(
    inputs: str, whole: Whole, proxy: FaultProxy, moments: Moments, tmp_path: Path
) -> None:
    """In one line, unless it was for something beside the work: a log, what progress is shown from."""
    for fault, number in moments.of(itertools.product(LASTING, range(whole.requests)), most=60):
        job = job_of(inputs, f"{inputs}-{fault.replace(' ', '-')}-{number}")
        proxy.faults = [dataclasses.replace(LASTING[fault], after=number)]
        ended = attempt(functools.partial(dedup, job), Moment(job.output, 0, "none"), tmp_path)
        proxy.faults = []
        assert ended.code in (0, StorageError.EXIT_CODE), (fault, number, ended.said)
        if ended.code:
            assert sum("error: s3://" in line for line in ended.said.splitlines()) == 1, ended.said
        again(job, whole, tmp_path)


def test_a_fifth_of_all_requests_throttled(inputs: str, whole: Whole, proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.faults = [Fault("status", share=0.2)]
    again(job_of(inputs, f"{inputs}-throttled"), whole, tmp_path)
    assert proxy.faults[0].done > whole.requests / 10
    proxy.faults = []


def again(job: DedupJob, whole: Whole, folder: Path) -> None:
    """Run the job: it succeeds, and its tables are those of an undisturbed run."""
    undisturbed(functools.partial(dedup, job), folder)
    assert storage.exists(storage.join(latest(job.output), "_SUCCESS"))
    assert differing(tables_of(latest(job.output)), whole.tables) == []
    storage.delete_folder(job.output)
