"""Ending by a signal: SIGTERM and Ctrl-C end a job with one line and a code of their own, wherever it is.

Python tells only its main thread of a signal, and not before that is back from what it computes outside Python, or
waits for. So a thread of its own hears of each signal too. It gives the main thread a few seconds to clean up, then
says the line, and ends the process, and with it those of a Ray that this process has started: the kernel ends these.
"""

import atexit
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from dupq.execution import guard

_UNWINDING_SECONDS = 3  # that the main thread has to clean up; `docker stop` kills after ten seconds in all
_LEAVING_SECONDS = 3  # that storage has to take what is written at the end


class _End:
    """What is known of the end of this process."""

    is_heeded = False
    signal: int | None = None  # the first one that was heard
    is_unwinding = False  # the main thread is
    code: int | None = None  # of the job, if it has ended by itself
    stderr = sys.stderr
    say: Callable[[str], None] = staticmethod(lambda line: print(line, file=sys.stderr, flush=True))
    leave: Callable[[], None] = staticmethod(lambda: None)


_end = _End()
_lock = threading.Lock()  # of what has ended the job
_is_unwound = threading.Event()
_silence = io.StringIO()


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
        for number in guard.CODES:
            signal.signal(number, _unwind)
        yield
    except BaseException:  # whatever became of what a signal raised
        if _end.signal is None:
            raise
        _await_end()


def _ignore() -> None:
    for number in guard.CODES:  # of which what is left of Python would take no notice, so that they would kill it
        signal.signal(number, signal.SIG_IGN)


def keep() -> None:
    """Keep `ray.init` from putting a handler of its own in the place of ours, if there are ours."""
    if _end.is_heeded:
        from ray._private import utils

        utils.set_sigterm_handler = lambda handler: None


def at_end(say: Callable[[str], None], leave: Callable[[], None]) -> None:
    """When a signal ends this process, call `say` with the line, and then `leave`, which may take its time."""
    _end.say, _end.leave = say, leave


def ended(code: int) -> None:
    """The job has ended by itself, so that a signal only shortens what comes now; does not return if one was first."""
    with _lock:
        if _end.signal is None:
            _end.code = code
            return
    _await_end()


def _unwind(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, once: Ray lets no other exception through where it waits."""
    if _end.code is None and not _end.is_unwinding:
        _end.is_unwinding = True
        _hush(number)
        raise KeyboardInterrupt


def _hush(number: int) -> None:
    """Nothing more is said: what ends now may fail in its own ways, and a signal to all processes ends Ray's too."""
    _end.signal = _end.signal or number
    sys.stdout = sys.stderr = _silence


def _listen(reads: int) -> None:
    while True:
        for number in os.read(reads, 64):
            if number in guard.CODES:
                _end_by(number)


def _end_by(number: int) -> None:
    with _lock:
        if _end.code is not None:
            guard.leave(_end.code)
        _hush(number)
    _is_unwound.wait(_UNWINDING_SECONDS)
    leaving = threading.Thread(target=_leave, daemon=True)
    leaving.start()
    leaving.join(_LEAVING_SECONDS)
    guard.leave(guard.CODES[_end.signal or number])


def _leave() -> None:
    sys.stderr = _end.stderr
    number = _end.signal or signal.SIGTERM
    _end.say(guard.line_of(number))
    guard.said(number)  # Ray may end this process any time, if the signal has ended Ray's
    sys.stderr = _silence
    _end.leave()


def _await_end() -> NoReturn:
    _is_unwound.set()
    while True:
        signal.pause()
