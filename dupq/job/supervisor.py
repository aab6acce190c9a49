"""The end of a job: one line and an exit code, after a signal, a crash in compiled code, or a kill.

A failed check in Ray's C++ ends the process at once, with lines that mean nothing to a user. Too little memory ends it
without a line. A signal to all processes also ends Ray's, and Ray may then end the job before Python sees the signal.
So the job runs in a child process. The process that the user started passes signals on to it, waits for its end, and
kills it if it does not react. Descriptor 2 of the child, where compiled code writes, is a file; Python's own stderr
stays as it was.

In the child, a signal raises KeyboardInterrupt in the main thread. If Ray has lost its head and blocks the main thread
for good, a thread ends the process (`fail`).
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
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from dupq.errors import INTERRUPTED, TERMINATED, ClusterError

CODES: dict[int, int] = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}
_NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_PATIENCE_SECONDS = 7  # for a job that a signal ends; `docker stop` kills after ten

_pipe: list[int] = []  # the writing end of the pipe to the parent


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Run the block, the whole work of the process, in a child that is watched. Call it before threads are started."""
    # without room for a file or a process, or without stderr, the job runs unwatched
    with contextlib.suppress(OSError, AttributeError):
        _begin()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CODES)  # `_begin` blocks them, also where it then has no room
    try:
        yield
    finally:
        tell_parent()


def tell_parent(code: int = 0) -> None:
    """Tell the parent that the last line is printed and the process ends, with this code unless it is 0."""
    with contextlib.suppress(OSError):  # if the parent was killed
        while _pipe:
            os.write(_pipe.pop(), bytes([code]))


def line_of(number: int) -> str:
    """Return the line for a job that a signal ended."""
    return f"ended by {_NAMES[number]}; what is finished is kept, run the same command again to go on"


def leave(code: int) -> NoReturn:
    """Kill the Ray processes that this process started, and end it at once.

    Python's own exit waits for threads that wait for Ray, and Ray's exit for a lost head. Workers that are just
    starting would search for their Ray for a while.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    processes = [os.getpid()]
    for process in processes:  # the list grows by the children of each
        with contextlib.suppress(OSError):  # if it has ended, or if this is not Linux
            for thread in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{thread}/children") as children:
                    processes += [int(child) for child in children.read().split()]
    for process in set(processes[1:]):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    tell_parent()
    os._exit(code)


def _begin() -> None:
    """Fork, and continue in the child, while the parent waits for it."""
    with tempfile.TemporaryFile(prefix="dupq-") as opened:
        file = os.dup(opened.fileno())
    reads, writes = os.pipe()
    parent = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, CODES)
    child = os.fork()
    if child:
        os.close(writes)
        try:
            _wait_for(child, reads, file)
        finally:  # even if no line can be written: the parent must never go on as the job
            os._exit(ClusterError.EXIT_CODE)
    with contextlib.suppress(OSError, AttributeError):  # Linux only
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(TERMINATED)
    os.close(reads)
    _pipe.append(writes)
    sys.stderr = os.fdopen(os.dup(2), "w", 1, sys.stderr.encoding, sys.stderr.errors)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable(2, all_threads=False)  # otherwise Ray enables it, visible to the user


def _wait_for(child: int, reads: int, file: int) -> NoReturn:
    """Act as the parent: pass signals on, and end as the child does, with a line if it printed none."""
    received: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if not received:
            signal.alarm(_PATIENCE_SECONDS)
        received.append(number)
        send(number)

    def send(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in CODES:
        signal.signal(number, pass_on)
    signal.signal(signal.SIGALRM, lambda *_: send(signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CODES)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.set_blocking(reads, False)  # a process that the child left behind may hold the other end
    message = b""
    with contextlib.suppress(BlockingIOError):
        message = os.read(reads, 1)
    if message:
        code = message[0] or (CODES[received[0]] if received and code == -signal.SIGKILL else code)
    elif received:
        _say(line_of(received[0]))
        code = CODES[received[0]]
    else:
        output, where = os.pread(file, os.fstat(file).st_size, 0), ""  # of compiled code
        if output:
            with tempfile.NamedTemporaryFile(prefix="dupq-", suffix=".log", delete=False) as log:
                log.write(output)
            where = f" ({log.name} has what it said)"
        _say(f"error: killed, or ended by a fault in compiled code{where}; run the same command again to go on")
        code = code if code < 0 else ClusterError.EXIT_CODE
    if code < 0:  # killed by a signal: end in the same way, so that the shell names it
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())


class _End:
    handles_signals = False
    stderr = sys.stderr
    say: Callable[[str, int], None] = staticmethod(lambda line, code: print(line, file=sys.stderr, flush=True))
    leave: Callable[[int], None] = staticmethod(lambda code: None)


_end = _End()
_received: list[int] = []  # signals
_ending = threading.Lock()  # held by the thread that ends the process; never released: others wait forever


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """End the process with a line and a code if a signal comes during the block. In the main thread only."""
    _end.handles_signals, _end.stderr = True, sys.stderr
    # read when Ray is imported, which takes SIGTERM for a failure
    os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")
    for number in CODES:
        signal.signal(number, _unwind)
    try:
        yield
    except BaseException:  # a signal's KeyboardInterrupt may have become another exception
        if not _received:
            raise
        _end_with(line_of(_received[0]), CODES[_received[0]])


def keep_handlers() -> None:
    """Prevent `ray.init` from replacing our signal handlers, if they are installed."""
    if _end.handles_signals:
        from ray._private import utils

        utils.set_sigterm_handler = lambda handler: None


def on_end(say: Callable[[str, int], None], leave: Callable[[int], None]) -> None:
    """Call `say` with the line and the exit code if anything but the job itself ends this process.

    Then call `leave` with the code; it may take some time.
    """
    _end.say, _end.leave = say, leave


def finish() -> None:
    """Ignore signals from now on: the job ended by itself. Does not return if a signal came first."""
    if not _end.handles_signals:
        return
    if _received:
        _end_with(line_of(_received[0]), CODES[_received[0]])
    _ending.acquire()
    for number in CODES:
        signal.signal(number, signal.SIG_IGN)


def fail(line: str, code: int) -> None:
    """End the process with an error, from any thread, unless a signal is already ending it."""
    if not _received:
        _end_with(line, code)


def _unwind(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, once: Ray passes on no other exception where it waits."""
    if not _received and not _ending.locked():
        _received.append(number)
        _hush()
        raise KeyboardInterrupt


def _hush() -> None:
    """Silence the process: what is unwound now may print errors, and a signal to all processes also ends Ray's."""
    sys.stdout = sys.stderr = io.StringIO()


def _end_with(line: str, code: int) -> NoReturn:
    """Print the line and end with this code, within `_PATIENCE_SECONDS` even if storage is unavailable."""
    _ending.acquire()
    late = threading.Timer(_PATIENCE_SECONDS, leave, (code,))
    late.daemon = True
    late.start()
    sys.stderr = _end.stderr
    _end.say(line, code)
    tell_parent(code)  # Ray may end this process at any time if the signal has ended Ray's own
    _hush()
    _end.leave(code)
    leave(code)
