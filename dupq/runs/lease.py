"""One job at a time is at work on a run, or on a site of an archive: it holds a lease, and a heartbeat keeps it alive.

Leases are numbered, and each is made by a conditional write: of several jobs that would take the next, one gets it. A
lease is over once its job gave it up, when its heartbeat is older than LIFE, and on the same machine as soon as its
process is gone. A job that was taken for dead, and is not, finds the later lease and stops. Tables are not at risk:
files are put in their place whole, and both jobs would write the same.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError, LeaseError
from dupq.storage import Time, read_or_none
from dupq.system import repeating

BEAT_SECONDS = 15.0
LIFE = timedelta(seconds=90)
_ours: dict[str, "Lease"] = {}  # those that this process holds, by file
_lock = threading.Lock()  # of `_ours`


class Holder(TypedDict):
    """A lease: who holds it. Times are UTC, in ISO 8601."""

    machine: str
    process: Annotated[int, Field(gt=0, lt=1 << 31)]
    since: Time
    seen: Time
    is_over: bool


class Lease:
    """The lease of this process on a run or a site."""

    def __init__(self, place: str, holder: Holder, name: str) -> None:
        """Use `held`."""
        self.place, self._holder, self._name = place, holder, name
        self._is_lost = False

    def check(self) -> None:
        """Raise LeaseError if, at the last beat, a later job had taken over."""
        if self._is_lost:
            raise LeaseError(f"{self._name}: another job took this one for dead and has taken it over; this one stops")

    def beat(self) -> None:
        """Say that this job is alive, or notice that it was taken for dead."""
        newest = _newest(storage.parent(self.place))
        self._is_lost = newest is not None and newest > storage.name(self.place)
        if not self._is_lost:
            self._holder["seen"] = _now()
            storage.write_json(self.place, self._holder)

    def give_up(self) -> None:
        """The job has ended."""
        if not self._is_lost:
            self._holder["is_over"] = True  # also of a beat that comes now
            storage.write_json(self.place, self._holder)


@contextlib.contextmanager
def held(folder: str, name: str = "") -> Iterator[Lease]:
    """The lease on what is made in `folder`, called `name` in errors. Raises LeaseError if another job holds it."""
    lease = _take(folder, name or folder)
    try:
        with repeating(lease.beat, BEAT_SECONDS):
            yield lease
    finally:
        try:
            lease.give_up()
        except DupqError:  # it runs out by itself
            pass
        except KeyboardInterrupt:  # of a job that was at its end anyhow
            lease.give_up()
            raise
        finally:  # no sooner: a process that ends meanwhile gives up what is here
            _ours.pop(lease.place, None)


def give_up_all() -> None:
    """All that this process holds, which ends now."""
    with _lock:
        held_now = list(_ours.values())
    for each in held_now:
        with contextlib.suppress(DupqError):  # as above
            each.give_up()


def _take(place: str, name: str) -> Lease:
    folder = storage.join(place, "leases")
    while True:
        newest = _newest(folder)
        if newest is not None:
            _check_over(name, storage.join(folder, newest))
        number = int(newest.removesuffix(".json")) + 1 if newest else 1
        now = _now()
        holder = Holder(machine=_machine(), process=os.getpid(), since=now, seen=now, is_over=False)
        file = storage.join(folder, f"{number:06d}.json")
        with _lock:
            is_ours = storage.create(file, storage.json_bytes(holder))
            if is_ours:
                _ours[file] = Lease(file, holder, name)
        if is_ours and _newest(folder) != storage.name(file):  # another came and went while this one looked
            _ours.pop(file)
            storage.delete(file)
        elif is_ours:
            if newest is not None:
                with contextlib.suppress(DupqError):  # the later one counts
                    storage.delete(storage.join(folder, newest))
            return _ours[file]


def _check_over(name: str, place: str) -> None:
    """Raise LeaseError unless the lease is over. A damaged one is: nobody can say whose it is."""
    holder = read_or_none(place, Holder)
    if holder is None or holder["is_over"]:
        return
    ends = datetime.fromisoformat(holder["seen"]) + LIFE
    if ends > datetime.now(UTC) and (holder["machine"] != _machine() or _is_at_work(holder["process"], place)):
        raise LeaseError(
            f"{name}: process {holder['process']} on {holder['machine'].partition('/')[0]} is at work on it since "
            f"{holder['since']}, last seen {holder['seen']}; wait for its end, or if it is dead, until "
            f"{ends.isoformat(timespec='seconds')}"
        )


def _is_at_work(process: int, place: str) -> bool:
    """Whether a process of this machine is there; this one may have failed to give its lease up."""
    if process == os.getpid():
        with _lock:
            return place in _ours
    with contextlib.suppress(PermissionError):  # another user's is there
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


def _newest(folder: str) -> str | None:
    names = [file.relative for file in storage.list_files(folder, ".json")]
    return max(names, default=None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _machine() -> str:
    """The name of this machine, and which of its sets of processes this is (containers have their own)."""
    try:
        return f"{socket.gethostname()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no Linux
        return socket.gethostname()
