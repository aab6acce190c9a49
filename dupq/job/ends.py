"""The ends of a job: one line and a code wherever it ends, by a signal, by a fault in compiled code, or killed.

A check that fails in Ray's C++ ends the process at once, with lines that say nothing to a user; too little memory
ends it without any; and a signal to all processes ends Ray's, whereupon Ray ends the job before Python hears of the
signal. So the job is a child, and the process that the user has started passes signals on to it, waits for its end,
and kills it if it does not hear them. Descriptor 2 of the child, where compiled code writes, is a file; Python's own
stderr stays where it was.

In the child a signal raises KeyboardInterrupt where the main thread is. Ray may keep that from it for good where its
head is lost; then a thread ends the process (`fail`).
"""

import contextlib
import ctypes
import faulthandler
import io
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from dupq.errors import INTERRUPTED, TERMINATED, ClusterError

CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
_NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_PATIENCE_SECONDS = 7  # of a job that a signal ends; `docker stop` kills after ten

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


def said(code: int = 0) -> None:
    """All has been said of the end of this process, which comes now, with this code if that is not 0."""
    with contextlib.suppress(OSError):  # the parent was killed
        while _pipe:
            os.write(_pipe.pop(), bytes([code]))


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
        if not heard:
            signal.alarm(_PATIENCE_SECONDS)
        heard.append(number)
        send(number)

    def send(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in CODES:
        signal.signal(number, pass_on)
    signal.signal(signal.SIGALRM, lambda *_: send(signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CODES)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_blocking(reads, False)  # a process that the child has left behind may hold the other end
    word = b""
    with contextlib.suppress(BlockingIOError):
        word = os.read(reads, 1)
    if word:
        code = word[0] or (CODES[heard[0]] if heard and code == -signal.SIGKILL else code)
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


class _End:
    """What is known of the end of this process."""

    is_heeded = False
    stderr = sys.stderr
    say: Callable[[str, int], None] = staticmethod(lambda line, code: print(line, file=sys.stderr, flush=True))
    leave: Callable[[int], None] = staticmethod(lambda code: None)


_end = _End()
_heard: list[int] = []  # signals
_ending = threading.Lock()  # of who ends the process; never released


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """Within this, which is all that the process does, signals end it as above. In the main thread only."""
    _end.is_heeded, _end.stderr = True, sys.stderr
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")  # read when Ray is imported; SIGTERM is one to it
    for number in CODES:
        signal.signal(number, _unwind)
    try:
        yield
    except BaseException:  # whatever became of what a signal raised
        if not _heard:
            raise
        _end_with(line_of(_heard[0]), CODES[_heard[0]])


def keep() -> None:
    """Keep `ray.init` from putting a handler of its own in the place of ours, if there are ours."""
    if _end.is_heeded:
        from ray._private import utils

        utils.set_sigterm_handler = lambda handler: None


def at_end(say: Callable[[str, int], None], leave: Callable[[int], None]) -> None:
    """When something else than the job itself ends this process, call `say` with the line and the exit code.

    And then `leave` with the code, which may take its time.
    """
    _end.say, _end.leave = say, leave


def ended() -> None:
    """The job has ended by itself, so that no signal ends it any more; does not return if one was first."""
    if not _end.is_heeded:
        return
    if _heard:
        _end_with(line_of(_heard[0]), CODES[_heard[0]])
    _be_the_one_that_ends()
    for number in CODES:
        signal.signal(number, signal.SIG_IGN)


def fail(line: str, code: int) -> None:
    """End the process with an error, wherever its main thread is, unless it is at its end already."""
    if not _heard:
        _end_with(line, code)


def _unwind(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, once: Ray lets no other exception through where it waits."""
    if not _heard and not _ending.locked():
        _heard.append(number)
        _hush()
        raise KeyboardInterrupt


def _hush() -> None:
    """Nothing more is said: what ends now may fail in its own ways, and a signal to all processes ends Ray's too."""
    sys.stdout = sys.stderr = io.StringIO()


def _be_the_one_that_ends() -> None:
    """Does not return if another thread ends the process already."""
    while not _ending.acquire(blocking=False):
        time.sleep(1)


def _end_with(line: str, code: int) -> NoReturn:
    """Say the line, and end with this code, in time also if storage is away."""
    _be_the_one_that_ends()
    late = threading.Timer(_PATIENCE_SECONDS, leave, (code,))
    late.daemon = True
    late.start()
    sys.stderr = _end.stderr
    _end.say(line, code)
    said(code)  # Ray may end this process any time, if the signal has ended Ray's
    _hush()
    _end.leave(code)
    leave(code)
