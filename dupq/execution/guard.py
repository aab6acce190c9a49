"""One line also where a process ends without a word of Python: by a fault in compiled code, or killed.

A check that fails in Ray's C++ ends the process at once, with lines that say nothing to a user, and so does too little
memory without any. So a child that does nothing else waits for the end. Descriptor 2, where compiled code writes, is a
file meanwhile; Python's own stderr stays where it was.
"""

import contextlib
import faulthandler
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import NoReturn

_pipe: list[int] = []  # its end to which is written that all has been said
_child = 0


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Within this, which is all that the process does, its end is watched. Before there is any other thread."""
    with contextlib.suppress(OSError):  # no room for a file, or for another process: as without all this
        _begin()
    try:
        yield
    finally:
        said()


def said() -> None:
    """All has been said of the end of this process, which comes now."""
    with contextlib.suppress(OSError):  # the child was killed
        while _pipe:
            os.write(_pipe.pop(), b".")


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
    for process in set(processes[1:]) - {_child}:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    said()
    os._exit(code)


def _begin() -> None:
    global _child
    file, path = tempfile.mkstemp(".log", "dupq-")
    reads, writes = os.pipe()
    _child = os.fork()
    if not _child:
        os.close(writes)
        _watch(reads, path)
    os.close(reads)
    _pipe.append(writes)
    sys.stderr = os.fdopen(os.dup(2), "w", 1, sys.stderr.encoding, sys.stderr.errors)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable(2, all_threads=False)  # else Ray does, where the user sees it


def _watch(reads: int, path: str) -> NoReturn:
    """Be the child: await a word, or the end of the other process."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        os.close(1)  # whoever reads it waits for the other process only
        is_said = os.read(reads, 1)
        kept = f" ({path} has what it said)" if os.path.getsize(path) and not is_said else ""
        if not kept:
            os.unlink(path)
        if not is_said:
            line = f"error: killed, or ended by a fault in compiled code{kept}; run the same command again to go on\n"
            os.write(2, line.encode())
    finally:
        os._exit(0)
