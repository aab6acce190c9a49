"""From a dump to clusters: ingest, train and dedup, one after the other."""

import argparse
import logging

from dupq.cli.options import add_gpus, add_preset, add_shared, add_table, add_teacher, columns_of, uri

_log = logging.getLogger(__name__)
DESCRIPTION = "Ingest dumps or tables of questions, train an encoder on them, and find their duplicates."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    add_table(parser)
    parser.add_argument(
        "--output", required=True, metavar="URI", type=uri, help="where the tables, the encoder and the runs go"
    )
    add_preset(parser)
    parser.add_argument(
        "--truth", metavar="URI", type=uri, help="planted pairs of a made archive (.tsv), to measure what was found"
    )
    add_teacher(parser)
    add_gpus(parser)
    add_shared(parser)


def run(arguments: argparse.Namespace) -> None:
    """Connect, do the three jobs, and say what was found and where the report is."""
    from dupq.pipelines.arguments.from_dump import FromDumpJob

    job = FromDumpJob(
        tuple(arguments.dump),
        arguments.output,
        arguments.preset,
        arguments.truth,
        tuple(arguments.set),
        arguments.gpus,
        arguments.teacher,
        arguments.site,
        columns_of(arguments),
    )
    checked = job.check()
    from dupq.execution import cluster  # Ray, and what works with it: later than the check, as that takes a second

    cluster.connect(arguments.ray)
    from dupq.pipelines.from_dump import from_dump
    from dupq.report.summary import summary

    _log.info(summary(from_dump(job, checked).uri))
