"""Telling somebody that a job failed: a command, and a webhook. Neither may hide the error."""

import json
import logging
import shlex
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from typing import NamedTuple

from dupq.runs import log

_SECONDS = 60
_log = logging.getLogger(__name__)


class Hooks(NamedTuple):
    """Whom to tell. None: nobody."""

    command: str | None = None
    webhook: str | None = None  # http or https


class Failure(NamedTuple):
    """What is told, as a JSON object."""

    job: str
    run: str | None  # the id of the run that the job was at work on; None: it had not come so far, or has no run
    exit_code: int
    error: str


def tell(hooks: Hooks, failure: Failure) -> None:
    """Give the failure to the command, on its standard input, and to the webhook, as a POST.

    Each has a minute. One that fails itself is a warning.
    """
    content = (json.dumps(failure._asdict(), ensure_ascii=False) + "\n").encode()
    if hooks.command:
        _run(hooks.command, content)
    if hooks.webhook:
        _post(hooks.webhook, content)


def failure_of(job: str, exit_code: int, error: str) -> Failure:
    """The failure of this process."""
    return Failure(job, log.place.run, exit_code, error)


def _run(command: str, content: bytes) -> None:
    try:
        subprocess.run(
            shlex.split(command),
            input=content,
            stdout=subprocess.DEVNULL,
            stderr=sys.stderr,  # which descriptor 2 may not be (execution/guard.py)
            timeout=_SECONDS,
            check=True,
        )
    except Exception as error:  # whatever it is, the job's own error and exit code matter more
        _log.warning(f"--on-failure {command}: {error}")


def _post(url: str, content: bytes) -> None:
    try:
        request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=_SECONDS).close()
    except Exception as error:  # as above
        _log.warning(f"--webhook {urllib.parse.urlsplit(url).hostname}: {_without_address(error)}")


def _without_address(error: Exception) -> str:
    """What went wrong, but nothing of the address besides its host: the rest may be a secret."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP error {error.code}"
    return str(error) if isinstance(error, OSError) else type(error).__name__
