"""Write a run's report.html anew.

python jobs/report.py --run out/cs/runs/RUN_ID
"""

import argparse

from dupq import command_line

VERSION = "0.1.0"


def main() -> None:
    """Parse, write the report, and say where it lies. Needs no Ray."""
    parser = argparse.ArgumentParser(description="Write a run's report.html anew.", allow_abbrev=False)
    parser.add_argument(
        "--run",
        required=True,
        metavar="URI",
        type=command_line.uri,
        help="a run's folder, or a folder of runs for the latest",
    )
    arguments = parser.parse_args()

    from dupq.report.page import write
    from dupq.runs.reader import open_run

    print(write(open_run(arguments.run).uri))


if __name__ == "__main__":
    command_line.main(main, VERSION)
