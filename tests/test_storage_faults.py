"""Storage on S3 that fails: what passes by itself is waited for, and the rest is said in one line.

The server is real (moto), behind a proxy that does the harm.
"""

import dataclasses
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from _pytest.mark import ParameterSet
from fault_proxy import Fault, FaultProxy

from dupq import patience, storage, tables
from dupq.dump.streams import read_header
from dupq.errors import DupqError, SettingError, StorageError
from dupq.job import progress
from dupq.job.table import Shuffled, write_batches
from dupq.runs.views import stored
from dupq.system import recording

TABLE = pa.table([range(1000), ["t"] * 1000, [str(number) for number in range(1000)]], schema=tables.TEXTS)
READ_SECONDS = 0.3  # then an answer counts as lost, where one is late


@pytest.fixture(scope="module")
def slow_proxy(s3: str) -> Iterator[FaultProxy]:
    with pytest.MonkeyPatch.context() as patch, FaultProxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
        patch.setenv("AWS_ENDPOINT_URL", proxy.address)
        patch.setenv("DUPQ_S3_PATIENCE_SECONDS", "60")
        patch.setattr(patience, "_FIRST_WAIT", 0.005)
        patch.setattr(patience, "_LONGEST_WAIT", 0.05)
        yield proxy


@pytest.fixture
def proxy(slow_proxy: FaultProxy) -> Iterator[FaultProxy]:
    """The proxy that everything on S3 goes through here; it does no harm before a test says so, nor after it."""
    slow_proxy.faults = []
    slow_proxy.requests.clear()
    yield slow_proxy
    slow_proxy.faults = []


@pytest.fixture
def folder(s3: str) -> str:
    uri = f"{s3}/faults"
    storage.delete_folder(uri)
    return uri


def _write_text(folder: str) -> None:
    storage.write_bytes(f"{folder}/text", b"0123456789" * 30_000)  # more than one request brings


def _write_table(folder: str) -> None:
    storage.write_table(f"{folder}/table.parquet", TABLE, tables.TEXTS)


def _write_parts(folder: str) -> None:
    write_batches(f"{folder}/parts", iter(TABLE.to_batches()), tables.TEXTS)


def _write_many(folder: str) -> None:
    for name in ("a.parquet", "b/c.json", "b/_d.parquet"):
        storage.write_bytes(f"{folder}/{name}", name.encode())


def _read_stream(folder: str) -> list[bytes]:
    with storage.open_input(f"{folder}/text") as stream:
        return [stream.read(300), stream.read(300), stream.read(100_000), stream.read()]


def _read_pieces(folder: str) -> pa.Table:
    return pa.Table.from_batches(storage.read_batches(f"{folder}/table.parquet", tables.TEXTS, ["key"], 300))


READS: dict[str, Callable[[str], object]] = {
    "read bytes": lambda folder: storage.read_bytes(f"{folder}/text"),
    "read a stream": _read_stream,
    "read a table": lambda folder: storage.read_table(f"{folder}/table.parquet"),
    "read pieces": _read_pieces,
    "read an exchanged part": lambda folder: Shuffled((f"{folder}/parts",), None, 2).batches(0),
    "kind of a file": lambda folder: storage.kind(f"{folder}/text"),
    "kind of a folder": storage.kind,
    "kind of nothing": lambda folder: storage.kind(f"{folder}/nothing"),
    "size": lambda folder: storage.size(f"{folder}/text"),
    "checksum": lambda folder: storage.checksum(f"{folder}/text"),
    "list": storage.list_files,
    "names": storage.names_in,
}
CHANGES: dict[str, Callable[[str], object]] = {
    "write bytes": lambda folder: storage.write_bytes(f"{folder}/new", b"new"),
    "write a table": _write_table,
    "create": lambda folder: storage.create(f"{folder}/new", b"mine"),
    "create too late": lambda folder: storage.create(f"{folder}/a.parquet", b"a.parquet"),
    "move": lambda folder: storage.move(f"{folder}/a.parquet", f"{folder}/b/e"),
    "delete": lambda folder: storage.delete(f"{folder}/a.parquet"),
    "clear": lambda folder: storage.clear(folder, {f"{folder}/a.parquet"}),
    "delete a folder": lambda folder: storage.delete_folder(f"{folder}/b"),
}
FAULTS = {
    "throttled": Fault("status", times=3),
    "reset": Fault("reset", times=3),
    "lost": Fault("lost", times=3),
    "truncated": Fault("truncated", times=3, method="GET"),
    "late": Fault("slow", times=1, seconds=2 * READ_SECONDS),
}


def sample(operations: Iterable[str], always: str = "") -> list[ParameterSet]:
    """Each operation with two of the faults in turns, as all are tried again by the same code; make full: with all."""
    found, turns = [], itertools.cycle(FAULTS)
    for operation in operations:
        chosen = {next(turns), next(turns), always}
        found += [pytest.param(operation, fault, marks=() if fault in chosen else pytest.mark.full) for fault in FAULTS]
    return found


@pytest.fixture(scope="module")
def written(s3: str) -> str:
    """A folder with files, for reading only."""
    folder = f"{s3}/written"
    for write in (_write_text, _write_table, _write_parts, _write_many):
        write(folder)
    return folder


# a change with "lost" too, as the store has made it
@pytest.mark.parametrize(("operation", "fault"), [*sample(READS), *sample(CHANGES, "lost")])
def test_each_request_may_fail_and_what_is_read_and_what_is_there_is_the_same(
    operation: str, fault: str, written: str, folder: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is at the first request, then at the second, and so on."""
    run, place = (READS[operation], written) if operation in READS else (CHANGES[operation], folder)
    _write_many(folder)
    proxy.requests.clear()
    returned, requests = run(place), proxy.count()
    wanted = _contents(folder)
    _expect(fault, monkeypatch)
    for after in range(requests):
        storage.delete_folder(folder)
        _write_many(folder)
        proxy.faults = [dataclasses.replace(FAULTS[fault], after=after)]
        assert run(place) == returned
        assert proxy.faults[0].done or fault == "truncated"
        proxy.faults = []
        assert _contents(folder) == wanted


def _expect(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an answer count as lost soon where one is late; elsewhere a busy machine may take its time."""
    if fault == "late":
        monkeypatch.setenv("DUPQ_S3_READ_SECONDS", str(READ_SECONDS))


def _contents(folder: str) -> dict[str, str]:
    """The checksums of all files, hidden ones too."""
    names = [*storage.names_in(folder), *(f"b/{name}" for name in storage.names_in(f"{folder}/b"))]
    return {name: storage.checksum(f"{folder}/{name}") for name in names}


def test_one_of_many_racers_creates_a_file_though_answers_get_lost(folder: str, proxy: FaultProxy) -> None:
    proxy.faults = [Fault("lost", method="PUT", share=0.5), Fault("status", method="PUT", share=0.3)]
    with ThreadPoolExecutor(12) as racers:
        created = list(racers.map(lambda _: storage.create(f"{folder}/mark", b"the same for all"), range(12)))
    assert created.count(True) == 1


def test_a_table_that_arrow_itself_reads_from_s3_is_as_patient(folder: str, proxy: FaultProxy) -> None:
    _write_table(folder)
    proxy.faults = [Fault("status", method="GET|HEAD", times=4)]
    assert stored(folder).arrow() == TABLE
    view = stored(folder)
    proxy.faults = [Fault("status", status=403, code="AccessDenied")]
    with pytest.raises(StorageError, match=r"faults: cannot be read \(.*ACCESS_DENIED[^\n]*$"):
        view.arrow()


@pytest.mark.parametrize(("status", "code"), [(500, "InternalError"), (503, "OfTomorrow"), (599, "OfTomorrow")])
def test_every_answer_of_500_and_above_is_waited_for(status: int, code: str, written: str, proxy: FaultProxy) -> None:
    wanted = storage.read_bytes(f"{written}/text")
    proxy.faults = [Fault("status", status=status, code=code, times=3)]
    assert storage.read_bytes(f"{written}/text") == wanted
    assert proxy.faults[0].done == 3


LASTING = {
    "AccessDenied": (403, r"no right to {doing} it \(AccessDenied\)"),
    "SignatureDoesNotMatch": (403, r"wrong key \(SignatureDoesNotMatch\)"),
    "InvalidAccessKeyId": (403, r"wrong key \(InvalidAccessKeyId\)"),
    "ExpiredToken": (400, r"expired token \(ExpiredToken\)"),
    "RequestTimeTooSkewed": (403, r"the clock of this machine is wrong"),
    "AuthorizationHeaderMalformed": (400, r"wrong region"),
    "NoSuchBucket": (404, r"no such bucket"),
    "KeyTooLongError": (400, r"the server refuses to {doing} it \(.*KeyTooLongError"),
}
EVERYTHING = {
    "read": [READS[name] for name in ("read bytes", "read a stream", "size", "kind of a file")],
    "list": [READS[name] for name in ("list", "names")],
    "write": [CHANGES[name] for name in ("write bytes", "create", "move")],
    "delete": [CHANGES["delete"]],
}


@pytest.mark.parametrize("code", LASTING)
@pytest.mark.parametrize("doing", EVERYTHING)
def test_what_does_not_pass_by_itself_is_said_at_once_in_one_line(
    code: str, doing: str, written: str, proxy: FaultProxy
) -> None:
    status, wanted = LASTING[code]
    proxy.faults = [Fault("status", status=status, code=code)]
    for run in EVERYTHING[doing]:
        proxy.requests.clear()
        with pytest.raises(StorageError) as caught:
            run(written)
        assert re.match(rf"s3://dupq/written.*: {wanted.format(doing=doing)}", str(caught.value))
        assert "\n" not in str(caught.value)
        assert proxy.count() <= 2  # HEAD, and GET for the reason


_GCS = "Generic GCS error: Error performing"
_AZURE = "Generic MicrosoftAzure error: "
_KEY_OF_AZURE = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"


def _answer(status: int, code: str) -> str:
    return f"GET http://host/x in 1ms - Server returned non-2xx status code: {status}: <Error>\n<Code>{code}</Code>"


@pytest.mark.parametrize(
    ("scheme", "answer", "said"),
    [
        ("gs", _answer(401, "AuthenticationRequired"), "wrong key (AuthenticationRequired); check GOOGLE_APPL"),
        (
            "gs",
            f"{_GCS} token request: Error performing GET http://metadata/token?a=b in 1ms - status code: 403",
            "no token from http://metadata/token (403); set GOOGLE_APPLICATION_CREDENTIALS",
        ),
        ("az", _answer(403, "AuthenticationFailed"), f"wrong key (AuthenticationFailed); check {_KEY_OF_AZURE}"),
        ("az", _answer(404, "ContainerNotFound"), "no such bucket;"),
        (
            "az",
            f"{_AZURE}Account must be specified",
            f"no key ({_AZURE}Account must be specified); set {_KEY_OF_AZURE}",
        ),
    ],
)
def test_what_google_and_azure_answer_is_said_in_one_line(scheme: str, answer: str, said: str) -> None:
    def ask() -> None:
        raise OSError(f"{answer}\n\nDebug source:\nmore")

    with pytest.raises(StorageError) as caught:
        patience.patiently(f"{scheme}://bucket/x", "read", ask)
    assert str(caught.value).startswith(f"{scheme}://bucket/x: {said}")
    assert "\n" not in str(caught.value)


def test_a_deletion_that_azure_is_too_busy_for_is_tried_again() -> None:
    answers = iter([OSError("Bulk delete request failed for key x: The server is busy. (code: 503)")])

    def delete() -> str:
        for answer in answers:
            raise answer
        return "done"

    assert patience.patiently("az://bucket/x", "delete", delete) == "done"


OUTLASTING = {
    "throttled": (Fault("status"), r"throttled \(SlowDown\)"),
    "server error": (Fault("status", status=500, code="InternalError"), r"the server fails \(InternalError\)"),
    "reset": (Fault("reset"), r"not reachable \(.*\)"),
    "late": (Fault("slow", seconds=2 * READ_SECONDS), r"not reachable \(.*[Tt]imeout.*\)"),
    "truncated": (Fault("truncated"), r"damaged or cut short on its way \(.*\)"),
}


@pytest.mark.parametrize("fault", OUTLASTING)
def test_when_patience_ends_it_is_said_what_it_was_and_how_long(
    fault: str, folder: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_text(folder)
    monkeypatch.setenv("DUPQ_S3_PATIENCE_SECONDS", "0.3")
    _expect(fault, monkeypatch)
    proxy.faults, wanted = [dataclasses.replace(OUTLASTING[fault][0])], OUTLASTING[fault][1]
    with pytest.raises(StorageError) as caught:
        storage.read_bytes(f"{folder}/text")
    assert re.fullmatch(
        rf"s3://dupq/faults/text: {wanted}; tried again for \d s \(DUPQ_S3_PATIENCE_SECONDS\)", str(caught.value)
    )
    assert proxy.faults[0].done > 1


def test_a_wait_that_is_no_moments_matter_is_told(
    folder: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "_WARN_AFTER", 0.02)
    proxy.faults = [Fault("status", times=10)]
    progress.show_as("json")
    assert not storage.exists(f"{folder}/text")
    progress.show_as("plain")
    told = json.loads(capsys.readouterr().err)
    assert told["level"] == "warning"
    assert told["message"] == "s3://dupq/faults/text: throttled (503); trying again for 60 s"


def test_nothing_listens_and_nothing_is_there(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DupqError, match=r"^s3://dupq/nothing: no such file$"):
        storage.open_input("s3://dupq/nothing")
    with pytest.raises(DupqError, match=r"^s3://dupq/nothing \(to become s3://dupq/something\): no such file$"):
        storage.move("s3://dupq/nothing", "s3://dupq/something")
    with pytest.raises(DupqError, match=r"^s3://a b/y: not a valid address \([^\n]*$"):
        storage.read_bytes("s3://a b/y")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("DUPQ_S3_PATIENCE_SECONDS", "0.1")
    with pytest.raises(StorageError, match=r"^s3://dupq/nothing: not reachable \(.*127\.0\.0\.1:1"):
        storage.exists("s3://dupq/nothing")
    for address in ("nonsense", "http://127.0.0.1:99999", "http://h:9:9", "http://[::1"):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(SettingError, match=re.escape(f"AWS_ENDPOINT_URL is '{address}'")):
            storage.exists("s3://dupq/nothing")


@pytest.mark.parametrize("seconds", ["", "soon", "0", "-1", "nan", "inf"])
def test_patience_is_a_number_of_seconds(s3: str, seconds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUPQ_S3_PATIENCE_SECONDS", seconds)
    with pytest.raises(SettingError, match=rf"^DUPQ_S3_PATIENCE_SECONDS is '{seconds}'; a number of seconds"):
        storage.exists(s3)


def test_a_bucket_that_is_not_there_is_named_by_whatever_is_done(s3: str) -> None:
    for name, run in (READS | CHANGES).items():
        with pytest.raises(StorageError, match=r"^s3://no-such-bucket-here/x[^\n]*: no such bucket; [^\n]*$"):
            pytest.fail(f"{name}: {run('s3://no-such-bucket-here/x')}")


def test_whether_a_file_is_unchanged_is_one_request(folder: str, proxy: FaultProxy) -> None:
    with recording() as noted:
        _write_text(folder)
    ((place, written),) = noted.items()
    proxy.requests.clear()
    assert storage.is_unchanged(place, written)
    assert proxy.count() == proxy.count("HEAD") == 1
    assert (storage.size(place), storage.checksum(place)) == (written["size"], written["checksum"])
    assert not storage.is_unchanged(place, {**written, "size": 7})
    assert not storage.is_unchanged(place, {**written, "checksum": "7"})
    assert not storage.is_unchanged(f"{folder}/nothing", written)


def test_an_object_replaced_while_it_is_read_is_not_mixed_with_the_new_one(folder: str, proxy: FaultProxy) -> None:
    _write_text(folder)
    with storage.open_input(f"{folder}/text") as stream:
        stream.read(10)
        storage.write_bytes(f"{folder}/text", b"x" * 300_000)
        with pytest.raises(StorageError, match=r"faults/text: damaged: it was replaced while it was read"):
            stream.read(100_000)


def test_a_small_file_takes_one_request_and_an_exchanged_part_two(folder: str, proxy: FaultProxy) -> None:
    _write_table(folder)
    rows = pa.table([range(50_000), ["t"] * 50_000, list(map(str, range(50_000)))], schema=tables.TEXTS)
    parts = [rows.slice(0, 100), rows.slice(100), rows.slice(0, 30_000)]
    write_batches(f"{folder}/parts", (part.combine_chunks().to_batches()[0] for part in parts), tables.TEXTS)
    for read, wanted in (
        (lambda: storage.read_table(f"{folder}/table.parquet"), 1),
        (lambda: Shuffled((f"{folder}/parts",), None, 2).batches(0), 2),
        (lambda: Shuffled((f"{folder}/parts",), None, 2).batches(1), 2),
    ):
        proxy.requests.clear()
        read()
        assert proxy.count() == proxy.count("GET") == wanted


def test_an_archive_that_may_not_be_read_is_not_called_damaged(folder: str, proxy: FaultProxy) -> None:
    _write_text(folder)
    proxy.faults = [Fault("status", status=403, code="AccessDenied", method="GET")]
    with pytest.raises(StorageError, match=r"faults/text: no right to read it"):
        read_header(f"{folder}/text")
