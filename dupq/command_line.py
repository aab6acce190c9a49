"""What all jobs share: options, errors in one line, exit codes."""

import argparse
import sys
import traceback
from collections.abc import Callable

from dupq import __version__, storage
from dupq.errors import DupqError


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, []) else super()._get_help_string(action)


def parser(description: str) -> argparse.ArgumentParser:
    """A parser that shows defaults, with the options that every job has."""
    made = argparse.ArgumentParser(description=description, formatter_class=_Formatter, allow_abbrev=False)
    made.add_argument(
        "--ray",
        metavar="ADDRESS",
        default=None,
        help="the Ray cluster to join, 'auto' for the one running on this machine; 'local' starts one. Without it "
        "RAY_ADDRESS decides, else one is started",
    )
    made.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        action="append",
        default=[],
        help="change a setting of dupq/config.py; may be repeated",
    )
    return made


def uri(text: str) -> str:
    """The type of an argument that names a file or folder; an empty one would be the folder that the job runs in."""
    if text.strip().lower() in ("", "file://", "s3://"):
        raise argparse.ArgumentTypeError(f"'{text}' names no file or folder; '.' is this one")
    return storage.absolute(text)


def main(job: Callable[[], None], script_version: str) -> None:
    """Run a job and end the process: 0 if all that was asked for is there, 2 for wrong arguments, else 1.

    `script_version` is the dupq that the script belongs to: `ray submit` copies only the script, so that script
    and installed package can drift apart.
    """
    try:
        if script_version != __version__:
            raise DupqError(
                f"this script belongs to dupq {script_version}, but {__version__} is installed here; "
                "refresh it with `ray up`"
            )
        job()
    except DupqError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(130)
    except Exception:
        traceback.print_exc()
        print("error: this is a fault of dupq; please report it with the lines above", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)
