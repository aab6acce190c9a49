r"""Measure an encoder, BM25 and shingle-Jaccard on an archive's known duplicates, and run the papers' experiments."""

import argparse
import logging
from typing import Any

from dupq import extras
from dupq.cli.options import add_gpus, add_shared, uri
from dupq.errors import SettingError
from dupq.evaluation.tables import TABLES

_log = logging.getLogger(__name__)
DESCRIPTION = "Measure an encoder and the baselines on known duplicates, or run the papers' experiments on them."
ALL = "all"
_GENERAL = " and ".join(sorted(TABLES))


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
    parser.add_argument("--output", required=True, metavar="URI", type=uri, help="where metrics.json and papers/ go")
    parser.add_argument(
        "--encoder",
        metavar="URI",
        type=uri,
        help=f"a trained encoder's folder; without it only the baselines. It and --set are for {_GENERAL}: the papers' "
        "systems have their own settings",
    )
    parser.add_argument(
        "--table",
        action="append",
        metavar="NAME",
        help=f"what to measure; may be repeated; default: {_GENERAL}. Tables of the papers (papers/README.md), such as "
        f"bogdanova-2, are measured on the sites of the archive and each --pair-set. {ALL}: all of these and those",
    )
    parser.add_argument(
        "--pair-set",
        action="append",
        default=[],
        metavar="URI",
        type=uri,
        help="a folder with one more data set for tables of the papers: pairs.tsv, or that and questions.tsv, or files "
        "of SemEval-2016 Task 3 (docs/papers.md); may be repeated",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tables of the papers with fewer pairs, epochs and questions, for a look"
    )
    add_gpus(parser)
    add_shared(parser)


def run(arguments: argparse.Namespace) -> None:
    """Connect, measure, and show the tables."""
    from dupq.pipelines.arguments.evaluate import EvaluationJob

    names = arguments.table or sorted(TABLES)
    general = tuple(name for name in sorted(TABLES) if name in names or ALL in names)
    of_papers = tuple(dict.fromkeys(name for name in names if name not in TABLES))
    if not general and (arguments.encoder or arguments.set):
        raise SettingError(
            f"--encoder and --set are for the tables {_GENERAL}; name one of these with --table, or "
            "all. The papers' systems have their own settings"
        )
    if not of_papers and (arguments.pair_set or arguments.quick):
        raise SettingError("--pair-set and --quick are for the papers' tables; name one of these with --table, or all")
    archive = arguments.questions, arguments.links, arguments.output
    job = EvaluationJob(*archive, arguments.encoder, general, tuple(arguments.set), arguments.gpus)
    checked = job.check() if general else None
    papers = _papers_job(arguments, of_papers) if of_papers else None
    sources = papers.check() if papers else None
    from dupq.execution import cluster  # Ray, and what works with it: later than the check, as that takes a second

    cluster.connect(arguments.ray)
    if general:
        from dupq.pipelines.evaluate import evaluate

        _log.info(evaluate(job, checked))
    if papers:
        [measuring] = extras.papers("job")
        _log.info(measuring.measure_papers(papers, sources))


def _papers_job(arguments: argparse.Namespace, names: tuple[str, ...]) -> Any:
    """Return the job of the papers' tables `names`. Raises SettingError if dupq_papers is not installed."""
    for module in extras.papers("arguments"):
        tables = tuple(module.TABLES) if ALL in names else names
        archive = arguments.questions, arguments.links, arguments.output
        return module.PapersJob(*archive, tables, tuple(arguments.pair_set), arguments.quick)
    raise SettingError(
        f"--table {', '.join(names)}: not among {_GENERAL}, and the papers' tables need the package dupq_papers, which "
        "is not installed (papers/README.md)"
    )
