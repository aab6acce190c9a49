r"""Measure an encoder, BM25 and shingle-Jaccard on an archive's known duplicates.

python jobs/evaluate.py --questions out/cs/questions --links out/cs/links --encoder out/cs/encoder \
        --output out/cs/quality
python jobs/evaluate.py --questions out/cs/questions --links labels.tsv --encoder out/cs/encoder --output out/cs/quality
"""

from dupq import command_line

VERSION = "0.1.0"


def main() -> None:
    """Parse, connect, measure, and show the tables."""
    from dupq.evaluation.tables import TABLES

    parser = command_line.parser("Measure an encoder beside BM25 and shingle-Jaccard on known duplicates.")
    parser.add_argument("--questions", required=True, metavar="URI", type=command_line.uri, help="the questions table")
    parser.add_argument(
        "--links",
        required=True,
        metavar="URI",
        type=command_line.uri,
        help="the links table, or a file of labelled pairs: lines of two questions (site/question_id, or with one site "
        "the id) and 1 (duplicates, also if nothing stands there) or 0, with tabs between",
    )
    parser.add_argument("--output", required=True, metavar="URI", type=command_line.uri, help="where metrics.json goes")
    parser.add_argument(
        "--encoder",
        metavar="URI",
        type=command_line.uri,
        help="a trained encoder's folder; without it only the baselines",
    )
    parser.add_argument(
        "--table",
        action="append",
        choices=sorted(TABLES),
        metavar="NAME",
        help=f"what to measure; may be repeated; default: all of {', '.join(sorted(TABLES))}",
    )
    arguments = parser.parse_args()

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
    job.check()
    cluster.connect(arguments.ray)
    print(evaluate(job))


if __name__ == "__main__":
    command_line.main(main, VERSION)
