"""Find the duplicate questions of an archive: the nightly job.

python jobs/dedup.py --questions out/cs/questions --encoder out/cs/encoder --output out/cs/runs
ray submit cluster.yaml jobs/dedup.py -- --questions s3://… --encoder s3://… --output s3://…/runs
"""

from dupq import command_line

VERSION = "0.1.0"


def main() -> None:
    """Parse, connect, find the duplicates, and say what was found and where the report lies."""
    parser = command_line.parser("Find the duplicate questions of an archive.")
    parser.add_argument("--questions", required=True, metavar="URI", type=command_line.uri, help="the questions table")
    parser.add_argument(
        "--encoder", required=True, metavar="URI", type=command_line.uri, help="a trained encoder's folder"
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="URI",
        type=command_line.uri,
        help="the folder of runs; the run gets one of its own in it",
    )
    parser.add_argument(
        "--links",
        metavar="URI",
        type=command_line.uri,
        help="known duplicates: they mark pairs, and quality is measured on them",
    )
    parser.add_argument(
        "--truth",
        metavar="URI",
        type=command_line.uri,
        help="planted pairs of a made archive (.tsv), to measure what was found",
    )
    parser.add_argument(
        "--previous",
        metavar="URI",
        type=command_line.uri,
        help="an earlier run, or the folder of runs for the latest: only what is new since then is searched, and the "
        "answer is the same",
    )
    arguments = parser.parse_args()

    from dupq.pipeline import DedupJob, dedup
    from dupq.report.summary import summary
    from dupq.stages import cluster

    job = DedupJob(
        arguments.questions,
        arguments.encoder,
        arguments.output,
        arguments.links,
        arguments.truth,
        arguments.previous,
        tuple(arguments.set),
    )
    job.check()
    cluster.connect(arguments.ray)
    print(summary(dedup(job).uri))


if __name__ == "__main__":
    command_line.main(main, VERSION)
