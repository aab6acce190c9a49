"""The ends of a job: one line and a code wherever it ends, by a signal, by a fault in compiled code, or killed."""

import atexit
import contextlib
import ctypes
import faulthandler
import io
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from dupq.errors import INTERRUPTED, TERMINATED, ClusterError

# One line and a code also where a job ends without a word of Python: by a fault in compiled code, or killed.
#
# A check that fails in Ray's C++ ends the process at once, with lines that say nothing to a user; too little memory
# ends it without any; and a signal to all processes ends Ray's, whereupon Ray ends the job before Python hears of the
# signal. So the job is a child, and the process that the user has started passes signals on to it and waits for its
# end. Descriptor 2 of the child, where compiled code writes, is a file; Python's own stderr stays where it was.

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
        code = word[0] or code
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


# Ending by a signal, or because Ray is lost: one line and a code, wherever the main thread is.
#
# Python tells only its main thread of a signal, and not before that is back from what it computes outside Python, or
# waits for. So a thread of its own hears of each signal too. It gives the main thread a few seconds to clean up, then
# says the line, and ends the process, and with it those of a Ray that this process has started: the kernel ends these.

_UNWINDING_SECONDS = 3  # that the main thread has to clean up; `docker stop` kills after ten seconds in all
_LEAVING_SECONDS = 3  # that storage has to take what is written at the end


class _End:
    """What is known of the end of this process."""

    is_heeded = False
    is_unwinding = False  # the main thread is
    is_being_said = False  # by another thread: what is said must not be hushed
    stderr = sys.stderr
    say: Callable[[str, int], None] = staticmethod(lambda line, code: print(line, file=sys.stderr, flush=True))
    leave: Callable[[int], None] = staticmethod(lambda code: None)


_end = _End()
_enders: list[int] = []  # what would end the job: numbers of signals, and of all else 0 - its exit code
_is_unwound = threading.Event()


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """Within this, which is all that the process does, signals end it as above. In the main thread only."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(reads,), name="signals", daemon=True).start()
    _end.is_heeded, _end.stderr = True, sys.stderr
    atexit.register(_ignore)  # the first is called as the last
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")  # read when Ray is imported; SIGTERM is one to it
    try:
        for number in CODES:
            signal.signal(number, _unwind)
        yield
    except BaseException:  # whatever became of what a signal raised
        if not _end.is_unwinding:
            raise
        _await_end()


def _ignore() -> None:
    for number in CODES:  # of which what is left of Python would take no notice, so that they would kill it
        signal.signal(number, signal.SIG_IGN)


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


def ended(code: int) -> None:
    """The job has ended by itself, so that a signal only shortens what comes now; does not return if one was first."""
    if _end.is_heeded and _first(-code) != -code:
        _await_end()


def fail(line: str, code: int) -> None:
    """End the process with an error, wherever its main thread is, unless it is at its end already."""
    if _first(-code) == -code and len(_enders) == 1:
        _end_with(line, code)


def _first(ender: int) -> int:
    """What ends the job: `ender`, unless something else was first."""
    _enders.append(ender)
    return _enders[0]


def _unwind(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, once: Ray lets no other exception through where it waits."""
    if _first(number) in CODES and not _end.is_unwinding:
        _end.is_unwinding = True
        if not _end.is_being_said:
            _hush()
        raise KeyboardInterrupt


def _hush() -> None:
    """Nothing more is said: what ends now may fail in its own ways, and a signal to all processes ends Ray's too."""
    sys.stdout = sys.stderr = io.StringIO()


def _listen(reads: int) -> None:
    while True:
        for number in os.read(reads, 64):
            if number in CODES:
                first = _first(number)
                if first not in CODES:
                    leave(-first)
                _hush()
                _is_unwound.wait(_UNWINDING_SECONDS)
                _end_with(line_of(first), CODES[first])


def _end_with(line: str, code: int) -> NoReturn:
    """Say the line, and end with this code, in time also if storage is away."""

    def finish() -> None:
        _end.is_being_said = True
        sys.stderr = _end.stderr
        _end.say(line, code)
        said(code)  # Ray may end this process any time, if the signal has ended Ray's
        _hush()
        _end.leave(code)

    finishing = threading.Thread(target=finish, daemon=True)
    finishing.start()
    finishing.join(_LEAVING_SECONDS)
    leave(code)


def _await_end() -> NoReturn:
    _is_unwound.set()
    while True:
        signal.pause()
