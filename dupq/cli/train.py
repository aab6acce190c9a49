"""Train an encoder on an archive's own text and duplicate links."""

import argparse

from dupq.cli.options import add_gpus, add_preset, add_shared, uri

DESCRIPTION = "Train an encoder on an archive's own text and duplicate links, with Ray Train."


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the job."""
    parser.add_argument("--questions", required=True, metavar="URI", type=uri, help="the questions table")
    parser.add_argument(
        "--links",
        metavar="URI",
        type=uri,
        help="the links table; not needed where there are --pairs, nor by presets that learn from titles and bodies",
    )
    parser.add_argument(
        "--pairs",
        action="append",
        default=[],
        metavar="URI",
        type=uri,
        help="more known pairs: lines of two questions (site/question_id, or with one site the id) and 1 (duplicates, "
        "also if it is missing) or 0, with tabs between; may be repeated",
    )
    parser.add_argument("--output", required=True, metavar="URI", type=uri, help="the encoder's folder")
    add_preset(parser)
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="training workers, one CPU each, and one GPU each if --gpus are enough",
    )
    add_gpus(parser)
    add_shared(parser)


def run(arguments: argparse.Namespace) -> None:
    """Connect, train, and say how good it became."""
    from dupq.pipelines.arguments.train import TrainingJob

    job = TrainingJob(
        arguments.questions,
        arguments.links,
        arguments.output,
        arguments.preset,
        tuple(arguments.set),
        arguments.workers,
        tuple(arguments.pairs),
        arguments.gpus,
    )
    checked = job.check()
    from dupq.execution import cluster  # Ray, and what works with it: later than the check, as that takes a second

    cluster.connect(arguments.ray)
    from dupq.pipelines.train import train

    train(job, checked)
