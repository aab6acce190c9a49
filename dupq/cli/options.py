"""Options that jobs share."""

import argparse
from typing import Any

from dupq import storage
from dupq.settings import config


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, where there is one to show."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, []) else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """Shows defaults, and takes no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        """The options of argparse's parser."""
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **options)


def add_shared(parser: argparse.ArgumentParser) -> None:
    """The options of every job that runs on Ray."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        default=None,
        help="the Ray cluster to join, 'auto' for the one running on this machine; 'local' starts one. Without it "
        "RAY_ADDRESS decides, else one is started",
    )
    parser.add_argument(
        "--set",
        metavar="SECTION.NAME=VALUE",
        action="append",
        default=[],
        help="change a setting (docs/settings.md); may be repeated",
    )


def add_preset(parser: argparse.ArgumentParser) -> None:
    """The settings that training starts from."""
    parser.add_argument(
        "--preset",
        default=config.DEFAULT_PRESET,
        metavar="NAME",
        help=f"the encoder's settings to start from: {', '.join(config.preset_names())}",
    )


def uri(text: str) -> str:
    """The type of an argument that names a file or folder; an empty one would be the folder that the job runs in."""
    if text.strip().lower() in ("", "file://", "s3://"):
        raise argparse.ArgumentTypeError(f"'{text}' names no file or folder; use '.' for the current directory")
    return storage.absolute(text)
