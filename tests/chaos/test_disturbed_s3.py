"""Jobs on S3, each of whose requests may fail: they end well, or in one line, and a rerun gives the same bytes.

The server is real (moto), behind a proxy that does the harm.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from disturbed import Ended, Job, Moment, attempt, differing, latest, searched_again
from every_job import JOBS, Given, Tried, encoder_in, run_in
from fault_proxy import Fault, FaultProxy, Request
from moments import Moments
from small_archive import Small, job_of, undisturbed

from dupq import storage
from dupq.errors import StorageError
from dupq.pipelines.dedup import dedup

PASSING = {
    "throttled": Fault("status", times=3),
    "reset": Fault("reset", times=3),
    "lost": Fault("lost", times=3),
    "truncated": Fault("truncated", times=3, method="GET"),
    "late": Fault("slow", times=1, seconds=2.5),
}
LASTING = {
    "no right": Fault("status", times=1, status=403, code="AccessDenied"),
    # not HEAD: its answer has no body that tells why
    "expired": Fault("status", method="GET|PUT|DELETE", times=1, status=400, code="ExpiredToken"),
}


def dedup_after_one_to(given: Given, output: str) -> Job:
    """After a run of dedup on the same archive, which a few questions have left since then."""
    job = job_of(given.inputs, output)
    return functools.partial(
        dedup, dataclasses.replace(job, questions=f"{given.inputs}/later", previous=f"{given.inputs}-dedup")
    )


ALL_JOBS = {**JOBS, "dedup-after-one": Tried(dedup_after_one_to, run_in)}
# Lost without harm: what operators look at, a lease that is written again (it is given up, and runs out by itself if it
# is not), and a finished run's work, which the job says is still there.
_ASIDE = re.compile(r"/(run\.log|progress\.json)$")
_LEASE = re.compile(r"/leases/\d+\.json$")
_WORK_LEFT = "what is left of the work could not be listed or removed"


@pytest.fixture(scope="module")
def proxy(s3: str) -> Iterator[FaultProxy]:
    with pytest.MonkeyPatch.context() as patch, FaultProxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        patch.setenv("AWS_ENDPOINT_URL", proxy.address)
        patch.setenv("DUPQ_S3_PATIENCE_SECONDS", "60")
        patch.setenv("DUPQ_S3_READ_SECONDS", "2")  # then an answer counts as lost
        yield proxy


@pytest.fixture(autouse=True)
def without_faults(proxy: FaultProxy) -> Iterator[None]:
    """What a test that fails leaves meets no other."""
    yield
    proxy.faults = []


@pytest.fixture(scope="module")
def given(small: Small, s3: str, proxy: FaultProxy) -> Given:
    folder = small.folder / "inputs"
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        storage.write_bytes(f"{s3}/chaos/inputs/{file.relative_to(folder)}", file.read_bytes())
        if file.is_relative_to(folder / "questions"):
            place = f"{s3}/chaos/inputs/later/{file.relative_to(folder / 'questions')}"
            rows = pq.ParquetFile(file).read()
            storage.write_table(place, rows.slice(2), rows.schema)
    dump = f"{s3}/chaos/{Path(small.dump).name}"
    storage.write_bytes(dump, Path(small.dump).read_bytes())
    return Given(f"{s3}/chaos/inputs", dump)


class Whole(NamedTuple):
    """A job that nothing disturbs."""

    requests: list[Request]
    made: dict[str, bytes]

    def moments(self, faults: dict[str, Fault]) -> list[tuple[str, int]]:
        """Each fault at each request that it may meet."""
        return [
            (name, number)
            for name, fault in faults.items()
            for number in range(sum(bool(re.search(fault.method, request.method)) for request in self.requests))
        ]


@pytest.fixture(scope="module")
def wholes(
    small: Small, given: Given, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Whole]:
    @functools.cache
    def whole(name: str) -> Whole:
        output, folder = f"{given.inputs}-{name}", tmp_path_factory.mktemp("whole")
        if name == "dedup-after-one":
            whole("dedup")
        proxy.requests.clear()
        undisturbed(ALL_JOBS[name].to(given, output), folder)
        requests, made = list(proxy.requests), ALL_JOBS[name].made(output)
        if name == "dedup":  # S3 has other checksums than a disk, so the run has another name
            assert differing(without_run(made), without_run(small.tables)) == []
        if name == "train":
            assert differing(made, encoder_in(str(small.folder / "inputs" / "encoder"))) == []
        assert name != "dedup-after-one" or searched_again(latest(output))
        return Whole(requests, made)

    return whole


def without_run(tables: dict[str, bytes]) -> dict[str, bytes]:
    """Tables without the name of their run, which the sheet for people has in its last column."""
    lines = tables["review.tsv"].decode().splitlines()
    return tables | {"review.tsv": "\n".join(line.rpartition("\t")[0] for line in lines).encode()}


@pytest.mark.parametrize("name", ALL_JOBS)
def test_a_request_that_fails_and_succeeds_when_it_is_made_again(
    name: str, given: Given, wholes: Callable[[str], Whole], proxy: FaultProxy, moments: Moments, tmp_path: Path
) -> None:
    skip_unless_sampled(name, "dedup-after-one", moments)
    whole = wholes(name)
    for fault, number in moments.of(whole.moments(PASSING), most=150):
        proxy.faults = [dataclasses.replace(PASSING[fault], after=number)]
        again(name, given, f"{given.inputs}-{name}-{fault}-{number}", whole, tmp_path)
        assert proxy.faults[0].done, (fault, number)
        proxy.faults = []


@pytest.mark.parametrize("name", ALL_JOBS)
def test_a_request_that_is_refused(
    name: str, given: Given, wholes: Callable[[str], Whole], proxy: FaultProxy, moments: Moments, tmp_path: Path
) -> None:
    """In one line, unless it was for something that may be lost without harm."""
    skip_unless_sampled(name, "train", moments)
    whole = wholes(name)
    for fault, number in moments.of(whole.moments(LASTING), most=60):
        output = f"{given.inputs}-{name}-{fault.replace(' ', '-')}-{number}"
        proxy.requests.clear()
        proxy.faults = [dataclasses.replace(LASTING[fault], after=number)]
        ended = attempt(ALL_JOBS[name].to(given, output), Moment(output, 0, "none"), tmp_path)
        proxy.faults = []
        [refused] = [request for request in proxy.requests if request.fault]
        if ended.code:
            assert ended.code == StorageError.EXIT_CODE, (refused, ended.said)
            assert "error: s3://" in ended.said.splitlines()[-1], ended.said
        else:
            assert may_be_lost(refused, proxy.requests, ended), (refused, ended.said)
        again(name, given, output, whole, tmp_path)


def skip_unless_sampled(name: str, sample: str, moments: Moments) -> None:
    if moments.few == 1 and name != sample:
        pytest.skip("all jobs make requests by the same code: of one moment each, one does, but in `make chaos`")


def may_be_lost(refused: Request, requests: list[Request], ended: Ended) -> bool:
    path = refused.path.partition("?")[0]
    is_again = Request("PUT", refused.path, None) in requests[: requests.index(refused)]
    return bool(_ASIDE.search(path) or (_LEASE.search(path) and is_again)) or _WORK_LEFT in ended.said


def again(name: str, given: Given, output: str, whole: Whole, folder: Path) -> None:
    """Run the job: it succeeds, and leaves what an undisturbed one does."""
    undisturbed(ALL_JOBS[name].to(given, output), folder)
    assert differing(ALL_JOBS[name].made(output), whole.made) == []
    storage.delete_folder(output)
