"""Stack Exchange dumps to tables.

python jobs/ingest.py --dump cs.stackexchange.com.7z --output out/cs
python jobs/ingest.py --dump questions.tsv.xz --site quora --columns id=id,title=question --output out/quora
ray submit cluster.yaml jobs/ingest.py -- --dump s3://bucket/dumps --output s3://bucket/archive
"""

from dupq import command_line, config

VERSION = "0.1.0"


def main() -> None:
    """Parse, connect, ingest, and say what came of it."""
    parser = command_line.parser(
        "Turn Stack Exchange dumps, or other tables of questions, into the tables of an archive."
    )
    parser.add_argument(
        "--dump",
        required=True,
        action="append",
        metavar="URI",
        type=command_line.uri,
        help="a .7z, a Posts.xml (also .gz, .bz2, .zst, .xz), a Parquet conversion, a CSV, TSV or Parquet of questions "
        "(with --columns), or a folder of them; may be repeated",
    )
    parser.add_argument("--output", required=True, metavar="URI", type=command_line.uri, help="where the tables go")
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
        default=config.IngestSettings.maximum_reject_share,
        help="more broken rows than this share of all fail a site",
    )
    arguments = parser.parse_args()

    from dupq.execution import cluster
    from dupq.pipelines.ingest import IngestJob, ingest

    job = IngestJob(
        tuple(arguments.dump),
        arguments.output,
        arguments.site,
        arguments.columns,
        arguments.answers,
        (f"ingest.maximum_reject_share={arguments.max_reject_share}", *arguments.set),
    )
    checked = job.check()
    cluster.connect(arguments.ray)
    ingest(job, checked)


if __name__ == "__main__":
    command_line.main(main, VERSION)
