"""Ingest Stack Exchange dumps, or other tables of questions."""

import argparse

from dupq.cli.options import add_shared, add_table, columns_of, uri
from dupq.settings.ingest import IngestSettings

DESCRIPTION = "Turn Stack Exchange dumps, or other tables of questions, into the tables of an archive."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    add_table(parser)
    parser.add_argument("--output", required=True, metavar="URI", type=uri, help="where the tables go")
    parser.add_argument("--answers", action="store_true", help="write an answers table too")
    parser.add_argument(
        "--max-reject-share",
        metavar="SHARE",
        type=float,
        default=IngestSettings().maximum_reject_share,
        help="more broken rows than this share of all fail a site",
    )
    add_shared(parser)


def run(arguments: argparse.Namespace) -> None:
    """Connect, ingest, and say what came of it."""
    from dupq.pipelines.arguments.ingest import IngestJob

    job = IngestJob(
        tuple(arguments.dump),
        arguments.output,
        arguments.site,
        columns_of(arguments),
        arguments.answers,
        (f"ingest.maximum_reject_share={arguments.max_reject_share}", *arguments.set),
    )
    checked = job.check()
    from dupq.execution import cluster  # Ray, and what works with it: later than the check, as that takes a second

    cluster.connect(arguments.ray)
    from dupq.pipelines.ingest import ingest

    ingest(job, checked)
