r"""Measure an encoder, BM25 and shingle-Jaccard on an archive's known duplicates."""

import argparse
import logging

from dupq.cli.options import add_shared, uri
from dupq.evaluation.tables import TABLES

_log = logging.getLogger(__name__)
DESCRIPTION = "Measure an encoder beside BM25 and shingle-Jaccard on known duplicates."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""

    parser.add_argument("--questions", required=True, metavar="URI", type=uri, help="the questions table")
    parser.add_argument(
        "--links",
        required=True,
        metavar="URI",
        type=uri,
        help="the links table, or a file of labelled pairs: lines of two questions (site/question_id, or with one site "
        "the id) and 1 (duplicates, also if it is missing) or 0, with tabs between",
    )
    parser.add_argument("--output", required=True, metavar="URI", type=uri, help="where metrics.json goes")
    parser.add_argument(
        "--encoder", metavar="URI", type=uri, help="a trained encoder's folder; without it only the baselines"
    )
    parser.add_argument(
        "--table",
        action="append",
        choices=sorted(TABLES),
        metavar="NAME",
        help=f"what to measure; may be repeated; default: all of {', '.join(sorted(TABLES))}",
    )
    add_shared(parser)


def run(arguments: argparse.Namespace) -> None:
    """Connect, measure, and show the tables."""
    from dupq.execution import cluster
    from dupq.pipelines.evaluate import EvaluationJob, evaluate

    job = EvaluationJob(
        arguments.questions,
        arguments.links,
        arguments.output,
        arguments.encoder,
        tuple(arguments.table or sorted(TABLES)),
        tuple(arguments.set),
    )
    checked = job.check()
    cluster.connect(arguments.ray)
    _log.info(evaluate(job, checked))
