"""The exceptions that users see, each a line that says what is wrong, where, and what to do; and the exit codes."""

from typing import ClassVar, Self

FAULT = 70  # the exit code of a bug in dupq, which is shown with its traceback
INTERRUPTED = 130  # the exit code after Ctrl-C
TERMINATED = 143  # the exit code after SIGTERM


class DupqError(Exception):
    """An error in one line: what is wrong, where (file, row or setting) and what to do.

    Jobs print it without a traceback and end with the exit code of its class. 1 is bad input, or anything without its
    own code. docs/operations.md says what to do for each.
    """

    EXIT_CODE: ClassVar[int] = 1

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        """Use `message`, which names the file and the remedy, and the exit code of the class by default."""
        super().__init__(message)
        self.exit_code = self.EXIT_CODE if exit_code is None else exit_code

    def __reduce__(self) -> tuple[type[Self], tuple[str, int]]:
        """Keep both fields when Ray carries the error from a worker to the driver."""
        return (type(self), (str(self), self.exit_code))


class SettingError(DupqError):
    """A wrong argument or setting."""

    EXIT_CODE = 2


class RejectsError(DupqError):
    """Too many rows of a dump were rejected."""

    EXIT_CODE = 3


class GateError(DupqError):
    """The run is complete but misses a gate, so it is not marked as succeeded."""

    EXIT_CODE = 4


class StorageError(DupqError):
    """Files cannot be read or written: no permission, wrong key, not reachable, throttled, no space."""

    EXIT_CODE = 5


class ClusterError(DupqError):
    """A fault of Ray: no cluster, a lost one, not enough memory, or work that it cannot schedule."""

    EXIT_CODE = 6


class LeaseError(DupqError):
    """Another job is at work on the same output."""

    EXIT_CODE = 7
