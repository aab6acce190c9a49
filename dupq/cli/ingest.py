"""Ingest Stack Exchange dumps, or other tables of questions."""

import argparse

from dupq.cli.options import add_shared, uri
from dupq.settings.ingest import IngestSettings

DESCRIPTION = "Turn Stack Exchange dumps, or other tables of questions, into the tables of an archive."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    parser.add_argument(
        "--dump",
        required=True,
        action="append",
        metavar="URI",
        type=uri,
        help="a .7z, a Posts.xml (also .gz, .bz2, .zst, .xz), a Parquet conversion, a CSV, TSV or Parquet of questions "
        "(with --columns), or a folder of them; may be repeated",
    )
    parser.add_argument("--output", required=True, metavar="URI", type=uri, help="where the tables go")
    parser.add_argument(
        "--site", metavar="NAME", help="the site's name, for a single dump; default: from the file or folder"
    )
    parser.add_argument(
        "--columns",
        metavar="FIELD=COLUMN,…",
        help="read tables from elsewhere: which of their columns is the id, title, body (HTML) or text (plain), and "
        "perhaps tags, creation_date, score, view_count, answer_count, accepted_answer_id, closed_date, owner, "
        "content_license",
    )
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
        arguments.columns,
        arguments.answers,
        (f"ingest.maximum_reject_share={arguments.max_reject_share}", *arguments.set),
    )
    checked = job.check()
    from dupq.execution import cluster  # Ray, and what works with it: later than the check, as that takes a second

    cluster.connect(arguments.ray)
    from dupq.pipelines.ingest import ingest

    ingest(job, checked)
