"""Find the duplicate questions of an archive: the nightly job."""

import argparse
import logging

from dupq.cli.options import add_gpus, add_shared, add_teacher, uri
from dupq.settings.dedup import CalibrationSettings, ClusterSettings

_log = logging.getLogger(__name__)
DESCRIPTION = "Find the duplicate questions of an archive."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    parser.add_argument("--questions", required=True, metavar="URI", type=uri, help="the questions table")
    parser.add_argument("--encoder", required=True, metavar="URI", type=uri, help="a trained encoder's folder")
    parser.add_argument(
        "--output", required=True, metavar="URI", type=uri, help="the folder of runs; the run gets one of its own in it"
    )
    parser.add_argument(
        "--links",
        metavar="URI",
        type=uri,
        help="known duplicates: a part calibrates probabilities, on another quality is measured, and they mark pairs",
    )
    parser.add_argument(
        "--truth", metavar="URI", type=uri, help="planted pairs of a made archive (.tsv), to measure what was found"
    )
    parser.add_argument(
        "--previous",
        metavar="URI",
        type=uri,
        help="an earlier run, or the folder of runs for the latest: only what is new since then is searched, clusters "
        "that live on keep their ids, and changes/ tells what became of the others",
    )
    parser.add_argument(
        "--precision",
        type=float,
        metavar="P",
        default=CalibrationSettings().precision,
        help="the expected share of the pairs that may join questions that are duplicates",
    )
    parser.add_argument(
        "--known-links",
        choices=["use", "ignore", "check"],
        default=ClusterSettings().known_links,
        help="use: known duplicates join their questions; check: they are for calibration and measures only; ignore: "
        "as if there were none",
    )
    parser.add_argument(
        "--verdicts",
        metavar="URI",
        type=uri,
        help="a run's worklist.tsv or review.tsv, filled in; verdicts.tsv in --output is always read. What is the same "
        "joins, what is different never does, and both calibrate; of a review.tsv that run's precision and recall are "
        "estimated",
    )
    parser.add_argument(
        "--skip-shard",
        action="append",
        default=[],
        metavar="PATH",
        help="leave out a file of the questions table, by its path below --questions (site=NAME/FILE); may be "
        "repeated; manifest and report say so",
    )
    parser.add_argument(
        "--min-recall", type=float, metavar="R", help="fail if fewer of the known duplicates are in one cluster"
    )
    parser.add_argument("--max-cluster", type=int, metavar="N", help="fail if a cluster has more questions")
    parser.add_argument(
        "--max-change",
        type=float,
        metavar="SHARE",
        help="fail if more of the questions of clusters have another cluster than in the --previous run",
    )
    parser.add_argument(
        "--min-rows-share",
        metavar="SHARE",
        type=float,
        help="fail, before anything is searched, if the archive has fewer than this share of the --previous run's "
        "questions",
    )
    add_teacher(parser)
    add_gpus(parser)
    add_shared(parser)


def run(arguments: argparse.Namespace) -> None:
    """Connect, find the duplicates, and say what was found and where the report is."""
    from dupq.pipelines.arguments.dedup import DedupJob
    from dupq.pipelines.gates import Gates

    job = DedupJob(
        arguments.questions,
        arguments.encoder,
        arguments.output,
        arguments.links,
        arguments.truth,
        arguments.previous,
        (
            f"calibration.precision={arguments.precision}",
            f"clusters.known_links={arguments.known_links}",
            *arguments.set,
        ),
        arguments.verdicts,
        Gates(arguments.min_recall, arguments.max_cluster, arguments.max_change, arguments.min_rows_share),
        tuple(sorted({_below(path, arguments.questions) for path in arguments.skip_shard})),
        arguments.gpus,
        arguments.teacher,
    )
    checked = job.check()
    from dupq.execution import cluster  # Ray, and what works with it: later than the check, as that takes a second

    cluster.connect(arguments.ray)
    from dupq.pipelines.dedup import dedup
    from dupq.report.summary import summary

    _log.info(summary(dedup(job, checked).uri))


def _below(path: str, folder: str) -> str:
    """A path below a folder, given as such or with the folder."""
    return path.removeprefix(f"{folder.rstrip('/')}/")
