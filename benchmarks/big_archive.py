"""Write a Stack Exchange dump of any size, made up from a seed, with duplicates whose truth is known.

    python benchmarks/big_archive.py --questions 1000000 --output FOLDER
    python benchmarks/big_archive.py --bytes 1GB --output FOLDER

writes FOLDER/SITE/Posts.xml, FOLDER/SITE/PostLinks.xml and FOLDER/truth.tsv, whose columns are those of the sample
archive's: a planted question, its original, whether it is a copy, a near copy or a rephrasing, and whether a
duplicate link in PostLinks.xml tells of it. Questions that share an original are duplicates of one another as well.
"""

import argparse
import re
import sys

from benchmarks.generator.archive import QUESTION_PHRASES, SHORT_PHRASES, SITE, Summary, write_archive
from benchmarks.generator.planting import Shares

__all__ = ["Shares", "Summary", "main", "write_archive"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECONDS_BETWEEN_LINES = 5.0


def parse_size(text: str) -> int:
    """Bytes from `1GB`, `200MB`, `5e8` or `123456`; units are powers of 1,000."""
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; expected a number with kB, MB, GB or TB, or without")
    return round(float(match[1]) * _UNITS[match[2]])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Write a made-up Stack Exchange dump of any size with duplicates, and the truth about them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    how_much = parser.add_mutually_exclusive_group(required=True)
    how_much.add_argument("--questions", type=int, default=argparse.SUPPRESS, help="number of questions")
    how_much.add_argument(
        "--bytes", type=parse_size, default=argparse.SUPPRESS, metavar="SIZE",
        help="size of Posts.xml instead, such as 200MB or 1GB; met within a few per cent",
    )  # fmt: skip
    parser.add_argument("--output", required=True, metavar="FOLDER", default=argparse.SUPPRESS, help="a local folder")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives another archive")
    parser.add_argument("--site", default=SITE, help="the site's name, and that of its folder")
    parser.add_argument("--no-answers", action="store_true", help="questions only")
    parser.add_argument("--short", action="store_true", help="short bodies, so that more questions fit on a disk")
    parser.add_argument(
        "--alike", type=int, default=0, metavar="N", help="mean number of questions on a subject; 0: only on a topic"
    )
    shares = Shares()
    parser.add_argument("--copies", type=float, default=shares.copies, help="share of questions that are copies")
    parser.add_argument("--near-copies", type=float, default=shares.near_copies, help="share that are near copies")
    parser.add_argument("--rephrasings", type=float, default=shares.rephrasings, help="share that are rephrasings")
    return parser


class _Lines:
    """A line of progress every few seconds."""

    def __init__(self) -> None:
        self._next = _SECONDS_BETWEEN_LINES

    def __call__(self, questions: int, size: int, seconds: float) -> None:
        if seconds >= self._next:
            self._next = seconds + _SECONDS_BETWEEN_LINES
            print(f"{questions:,} questions, {size / 1e6:,.0f} MB, {size / 1e6 / seconds:.1f} MB/s", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    shares = Shares(options.copies, options.near_copies, options.rephrasings)
    try:
        summary = write_archive(
            options.output,
            questions=getattr(options, "questions", None),
            size=getattr(options, "bytes", None),
            seed=options.seed,
            site=options.site,
            with_answers=not options.no_answers,
            shares=shares,
            progress=_Lines(),
            phrases=SHORT_PHRASES if options.short else QUESTION_PHRASES,
            alike=options.alike,
        )
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    _print(summary)
    return 0


def _print(summary: Summary) -> None:
    planted = ", ".join(f"{count:,} {kind}" for kind, count in summary.planted.items())
    print(f"{summary.questions:,} questions, {summary.posts:,} posts, {summary.links:,} links; planted: {planted}")
    share = summary.question_bytes / summary.bytes
    print(
        f"{summary.bytes / 1e6:,.1f} MB in {summary.seconds:.1f} s: {summary.megabytes_per_second:.1f} MB/s; "
        f"questions are {share:.0%} of it"
    )
    print(f"written to {summary.posts_path.parent}, the truth to {summary.truth_path}")


if __name__ == "__main__":
    raise SystemExit(main())
