"""Of several jobs at one run one works, and a dead job keeps nobody from it."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dupq import storage
from dupq.errors import LeaseError, StorageError
from dupq.job import lease

HOLD = """
import sys, time
from dupq.job.lease import held
with held(sys.argv[1]):
    print("held", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def other(tmp_path: Path) -> subprocess.Popen:
    """Another process that holds the lease."""
    job = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "held\n"
    yield job
    job.kill()
    job.wait()


def newest(run: Path) -> str:
    return max(str(path) for path in (run / "leases").glob("*.json"))


def test_a_second_job_is_told_who_is_at_work_until_that_one_is_killed(other: subprocess.Popen, tmp_path: Path) -> None:
    with pytest.raises(LeaseError, match=rf"process {other.pid} on \S+ is at work on it since 2") as caught:
        lease._take(str(tmp_path), "it")
    assert caught.value.exit_code == 7
    other.kill()
    other.wait()
    with lease.held(str(tmp_path)):
        assert newest(tmp_path).endswith("000002.json")


def test_one_after_the_other(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        with lease.held(str(tmp_path)), pytest.raises(LeaseError):
            lease._take(str(tmp_path), "it")
        assert newest(tmp_path).endswith(f"{number:06d}.json")
    assert len(list((tmp_path / "leases").iterdir())) == 1


def test_one_that_could_not_be_given_up_holds_up_nobody_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: lease.Lease) -> None:
        raise StorageError("no disk")

    with monkeypatch.context() as patch, lease.held(str(tmp_path)):
        patch.setattr(lease.Lease, "give_up", fails)
    assert not storage.read_json(newest(tmp_path))["is_over"]
    with lease.held(str(tmp_path)):
        assert newest(tmp_path).endswith("000002.json")


@pytest.mark.parametrize(("age", "is_alive"), [(timedelta(seconds=30), True), (timedelta(seconds=100), False)])
def test_on_another_machine_the_heartbeat_decides(age: timedelta, is_alive: bool, tmp_path: Path) -> None:
    with lease.held(str(tmp_path)):
        pass
    uri = newest(tmp_path)
    seen = (datetime.now(UTC) - age).isoformat(timespec="seconds")
    storage.write_json(uri, {**storage.read_json(uri), "machine": "elsewhere/1", "is_over": False, "seen": seen})
    if is_alive:
        with pytest.raises(LeaseError, match="on elsewhere is at work"):
            lease._take(str(tmp_path), "it")
    else:
        with lease.held(str(tmp_path)):
            pass


def test_a_process_of_the_same_number_that_came_later_is_another(tmp_path: Path) -> None:
    with lease.held(str(tmp_path)):
        uri = newest(tmp_path)
        long_ago = (datetime.now(UTC) - lease.LIFE).isoformat(timespec="seconds")
        storage.write_json(uri, {**storage.read_json(uri), "process": os.getppid(), "seen": long_ago})
        with lease.held(str(tmp_path)):
            pass


def test_who_was_taken_for_dead_stops_and_leaves_the_later_lease_alone(tmp_path: Path) -> None:
    mine = lease._take(str(tmp_path), "it")
    mine.beat()
    mine.check()
    storage.delete(newest(tmp_path))
    later = lease._take(str(tmp_path), "it")
    storage.write_json(f"{tmp_path}/leases/000002.json", storage.read_json(newest(tmp_path)))
    mine.beat()
    with pytest.raises(LeaseError, match="has taken it over"):
        mine.check()
    mine.give_up()
    later.check()
    assert not storage.read_json(newest(tmp_path))["is_over"]


def test_a_heartbeat_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.01)
    beats = threading.Event()
    monkeypatch.setattr(lease.Lease, "beat", lambda self: beats.set())
    with lease.held(str(tmp_path)):
        assert beats.wait(10)


def test_of_many_that_ask_at_once_one_gets_it(tmp_path: Path) -> None:
    with lease.held(str(tmp_path)):
        pass
    start = threading.Barrier(8)

    def take(_: int) -> bool:
        start.wait()
        try:
            return bool(lease._take(str(tmp_path), "it"))
        except LeaseError:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(take, range(8))) == 1


def test_a_listing_that_missed_a_change_of_leases_makes_no_second_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease.held(str(tmp_path)):
        pass
    with lease.held(str(tmp_path)):
        listed = lease._newest
        missed = iter([None])  # 000001 was deleted, and 000002 made, while the folder was read
        monkeypatch.setattr(lease, "_newest", lambda folder: next(missed, listed(folder)))
        with pytest.raises(LeaseError, match="is at work on it"):
            lease._take(str(tmp_path), "it")
        assert [path.name for path in (tmp_path / "leases").iterdir()] == ["000002.json"]


@pytest.mark.parametrize("machine", ["elsewhere/1", lease._machine()])
def test_a_lease_that_is_damaged_is_over(machine: str, tmp_path: Path) -> None:
    with lease.held(str(tmp_path)):
        holder = {**storage.read_json(newest(tmp_path)), "machine": machine}
    damages: list[object] = [
        *({"seen": seen} for seen in ("", "soon", "2026-11-21T22:00:00", "9999-12-31T23:59:59+00:00", 7, None)),
        *({"since": since} for since in ("<b>", None)),
        *({"process": process} for process in (0, -1, 1 << 70, "1")),
        [],
    ]
    for number, damage in enumerate(damages, 2):
        storage.write_json(newest(tmp_path), {**holder, **damage} if isinstance(damage, dict) else damage)
        with lease.held(str(tmp_path)):
            assert newest(tmp_path).endswith(f"{number:06d}.json")
