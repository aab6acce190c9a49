"""A lease lets one job at a time work on a run, or on a site of an archive; a heartbeat keeps it alive.

Leases are numbered, and each is made by a conditional write: of several jobs that try to take the next one, one gets
it. A lease is over when its job gave it up, when its heartbeat is older than LIFE, or, on the same machine, when its
process has ended. A job whose heartbeat stopped for too long finds the later lease and stops. The tables are safe even
so: each file is put in place whole, and both jobs write the same bytes.
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
_ours: dict[str, "Lease"] = {}  # the leases that this process holds, by file
_lock = threading.Lock()  # of `_ours`


class Holder(TypedDict):
    """The content of a lease: who holds it. Times are UTC, in ISO 8601."""

    machine: str
    process: Annotated[int, Field(gt=0, lt=1 << 31)]
    since: Time
    seen: Time
    is_over: bool


class Lease:
    """The lease of this process on a run or a site, in the file `uri`."""

    def __init__(self, uri: str, holder: Holder, name: str) -> None:
        """Use the lease that `holder` has taken; `name` is the run or site, for errors."""
        self.uri, self._holder, self._name = uri, holder, name
        self._is_lost = False

    def check(self) -> None:
        """Raise LeaseError if, at the last beat, a later job had taken over."""
        if self._is_lost:
            raise LeaseError(f"{self._name}: another job took this one for dead and has taken it over; this one stops")

    def beat(self) -> None:
        """Record that this job is alive, or notice that another one has taken over."""
        newest = _newest(storage.parent(self.uri))
        self._is_lost = newest is not None and newest > storage.name(self.uri)
        if not self._is_lost:
            self._holder["seen"] = _now()
            storage.write_json(self.uri, self._holder)

    def give_up(self) -> None:
        """Record that the job has ended."""
        if not self._is_lost:
            self._holder["is_over"] = True  # also in a beat that is written now
            storage.write_json(self.uri, self._holder)


@contextlib.contextmanager
def held(folder: str, name: str = "") -> Iterator[Lease]:
    """Hold the lease on `folder`, called `name` in errors. Raises LeaseError if another job holds it."""
    lease = _take(folder, name or folder)
    try:
        with repeating(lease.beat, BEAT_SECONDS):
            yield lease
    finally:
        try:
            lease.give_up()
        except DupqError:  # the lease will expire
            pass
        except KeyboardInterrupt:  # the signal came while this lease was given up
            lease.give_up()
            raise
        finally:  # not sooner, since `give_up_all` must find the lease if the process ends meanwhile
            _ours.pop(lease.uri, None)


def give_up_all() -> None:
    """Give up all leases of this process, which is about to end."""
    with _lock:
        leases = list(_ours.values())
    for lease in leases:
        with contextlib.suppress(DupqError):  # the lease will expire
            lease.give_up()


def _take(folder: str, name: str) -> Lease:
    leases = storage.join(folder, "leases")
    while True:
        newest = _newest(leases)
        if newest is not None:
            _check_over(name, storage.join(leases, newest))
        number = int(newest.removesuffix(".json")) + 1 if newest else 1
        now = _now()
        holder = Holder(machine=_machine(), process=os.getpid(), since=now, seen=now, is_over=False)
        uri = storage.join(leases, f"{number:06d}.json")
        with _lock:
            is_ours = storage.create(uri, storage.json_bytes(holder))
            if is_ours:
                _ours[uri] = Lease(uri, holder, name)
        if is_ours and _newest(leases) != storage.name(uri):  # another job came and went since the first listing
            _ours.pop(uri)
            storage.delete(uri)
        elif is_ours:
            if newest is not None:
                with contextlib.suppress(DupqError):  # only the newest lease counts
                    storage.delete(storage.join(leases, newest))
            return _ours[uri]


def _check_over(name: str, uri: str) -> None:
    """Raise LeaseError unless the lease is over. A damaged one is, since nobody can say whose it was."""
    holder = read_or_none(uri, Holder)
    if holder is None or holder["is_over"]:
        return
    ends = datetime.fromisoformat(holder["seen"]) + LIFE
    if ends > datetime.now(UTC) and (holder["machine"] != _machine() or _is_held(uri, holder["process"])):
        raise LeaseError(
            f"{name}: process {holder['process']} on {holder['machine'].partition('/')[0]} is at work on it since "
            f"{holder['since']}, last seen {holder['seen']}; wait for its end, or if it is dead, until "
            f"{ends.isoformat(timespec='seconds')}"
        )


def _is_held(uri: str, process: int) -> bool:
    """Return whether a process of this machine holds a lease. This one may have failed to give it up."""
    if process == os.getpid():
        with _lock:
            return uri in _ours
    with contextlib.suppress(PermissionError):  # the process exists and is another user's
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
    return True


def _newest(leases: str) -> str | None:
    names = [file.relative for file in storage.list_files(leases, ".json")]
    return max(names, default=None)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _machine() -> str:
    """Return the host name and, as containers may share it, the PID namespace."""
    try:
        return f"{socket.gethostname()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return socket.gethostname()
