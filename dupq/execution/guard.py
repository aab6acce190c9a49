"""One line and a code also where a job ends without a word of Python: by a fault in compiled code, or killed.

A check that fails in Ray's C++ ends the process at once, with lines that say nothing to a user; too little memory ends
it without any; and a signal to all processes ends Ray's, whereupon Ray ends the job before Python hears of the signal.
So the job is a child, and the process that the user has started passes signals on to it and waits for its end.
Descriptor 2 of the child, where compiled code writes, is a file; Python's own stderr stays where it was.
"""

import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from dupq.errors import INTERRUPTED, TERMINATED, ClusterError

CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
_NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl

_pipe: list[int] = []  # its end to which is written that all has been said


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Within this, which is all that the process does, its end is watched. Before there is any other thread."""
    with contextlib.suppress(OSError, AttributeError):  # no room for a file or a process, no stderr: then unwatched
        _begin()
    try:
        yield
    finally:
        said()


def said(number: int = 0) -> None:
    """All has been said of the end of this process, which comes now; by the signal `number`, if that is not 0."""
    with contextlib.suppress(OSError):  # the parent was killed
        while _pipe:
            os.write(_pipe.pop(), bytes([number]))


def line_of(number: int) -> str:
    """What is said of a job that a signal has ended."""
    return f"ended by {_NAMES[number]}; what is finished is kept, run the same command again to go on"


def leave(code: int) -> NoReturn:
    """End this process, and those of a Ray that it has started, at once.

    Python's own end waits for threads that wait for Ray, and Ray's for a lost head. Workers that are just starting
    would look for their Ray for a while.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    processes = [os.getpid()]
    for process in processes:  # which grows
        with contextlib.suppress(OSError):  # it has ended, or this is no Linux
            for thread in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{thread}/children") as children:
                    processes += [int(child) for child in children.read().split()]
    for process in set(processes[1:]):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    said()
    os._exit(code)


def _begin() -> None:
    """Go on in a child. What the user has started waits for it."""
    with tempfile.TemporaryFile(prefix="dupq-") as opened:
        file = os.dup(opened.fileno())
    reads, writes = os.pipe()
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, CODES)
    child = os.fork()
    if child:
        os.close(writes)
        _wait_for(child, reads, file)
    with contextlib.suppress(OSError, AttributeError):  # Linux only
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(TERMINATED)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CODES)
    os.close(reads)
    _pipe.append(writes)
    sys.stderr = os.fdopen(os.dup(2), "w", 1, sys.stderr.encoding, sys.stderr.errors)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable(2, all_threads=False)  # else Ray does, where the user sees it


def _wait_for(child: int, reads: int, file: int) -> NoReturn:
    """Be the parent: pass signals on, and end as the child does, with a line if it has not said one."""
    heard: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in CODES:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CODES)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_blocking(reads, False)  # a process that the child has left behind may hold the other end
    word = b""
    with contextlib.suppress(BlockingIOError):
        word = os.read(reads, 1)
    if word:
        code = CODES.get(word[0], code)
    elif heard:
        _say(line_of(heard[0]))
        code = CODES[heard[0]]
    else:
        _say(f"error: killed, or ended by a fault in compiled code{_kept(file)}; run the same command again to go on")
        code = code if code < 0 else ClusterError.EXIT_CODE
    if code < 0:  # killed: the shell says by what, as of this process
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _kept(file: int) -> str:
    """Keep what compiled code has said under a name, and say which; "" if it has said nothing."""
    said = os.pread(file, os.fstat(file).st_size, 0)
    if not said:
        return ""
    with tempfile.NamedTemporaryFile(prefix="dupq-", suffix=".log", delete=False) as kept:
        kept.write(said)
    return f" ({kept.name} has what it said)"


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())
