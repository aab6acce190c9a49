"""Stack Exchange dumps to tables.

python jobs/ingest.py --dump cs.stackexchange.com.7z --output out/cs
ray submit cluster.yaml jobs/ingest.py -- --dump s3://bucket/dumps --output s3://bucket/archive
"""

from dupq import command_line, storage

VERSION = "0.1.0"


def main() -> None:
    """Parse, connect, ingest, and say what came of it."""
    parser = command_line.parser("Turn Stack Exchange dumps into questions, links and rejects tables.")
    parser.add_argument(
        "--dump",
        required=True,
        action="append",
        metavar="URI",
        type=storage.absolute,
        help="a .7z, a Posts.xml, or a folder of them; may be repeated",
    )
    parser.add_argument(
        "--output", required=True, metavar="URI", type=storage.absolute, help="where questions/, links/ and rejects/ go"
    )
    parser.add_argument(
        "--site", metavar="NAME", help="the site's name, for a single dump; default: from the file or folder"
    )
    arguments = parser.parse_args()

    from dupq.ingest_pipeline import IngestJob, ingest
    from dupq.stages import cluster

    job = IngestJob(tuple(arguments.dump), arguments.output, arguments.site, tuple(arguments.set))
    job.check()
    cluster.connect(arguments.ray)
    ingest(job)


if __name__ == "__main__":
    command_line.main(main, VERSION)
