"""The exceptions that users see: one line that says what is wrong, where, and what to do."""

from typing import Self


class DupqError(Exception):
    """What is wrong, where (file, row or setting) and what to do, in one line.

    Jobs print it without a traceback and end with `exit_code`: 2 for wrong arguments or settings, 1 for
    everything else.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        """`message` is shown as it is, so it names the file and the remedy."""
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type[Self], tuple[str, int]]:
        """Keep both fields when Ray carries the error from a worker to the driver."""
        return (type(self), (str(self), self.exit_code))


class SettingError(DupqError):
    """A wrong argument or setting."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        """Like DupqError, with exit code 2."""
        super().__init__(message, exit_code)
