"""The commands of `dupq`, each a function of its parsed arguments (dupq/cli.py).

Each imports its modules when it is called: those of its checks first, then Ray, which takes a second, and the report.
"""

import argparse
import contextlib
import importlib
import inspect
import itertools
import json
import logging
import re
import signal
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from dupq.errors import SettingError

Job = TypeVar("Job")
ALL = "all"  # tables of `dupq evaluate`
SCOPES = ("all", "site", "tags", "owner")  # that need no column of a table
_log = logging.getLogger(__name__)
_ENDINGS = re.compile(r"(-Posts)?(\.(7z|zip|xml|csv|tsv|jsonl?|ndjson|parquet|gz|bz2|xz|zst))+$", re.IGNORECASE)
_DOMAIN = re.compile(r"(\.stackexchange)?\.(com|net|org)$", re.IGNORECASE)


def _job_of(kind: Callable[..., Job], arguments: argparse.Namespace, **more: object) -> Job:
    """Return a job or a part of one (pipelines/arguments.py) with the options, and `more`, that are its fields."""
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in vars(arguments).items()}
    options["assignments"] = _assignments(arguments)
    names = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in {**options, **more}.items() if name in names})


def _assignments(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the settings that options change, which have their names, and then those of --set."""
    settings = (f"{name}={value}" for name, value in vars(arguments).items() if "." in name and value is not None)
    return (*settings, *getattr(arguments, "assignments", ()))


def _run_on_ray(job: Any, arguments: argparse.Namespace) -> None:
    """Check a job (pipelines/arguments.py), connect to Ray, run it, and log the summary of its run, if it makes one."""
    checked = job.check()
    from dupq.job import cluster  # which imports Ray, as the pipeline does

    cluster.connect(arguments.ray)
    name = "dedup" if arguments.job == "judge" else arguments.job
    module = importlib.import_module(f"dupq.pipelines.{'train' if name == 'from_dump' else name}")
    made = getattr(module, name)(job, checked)
    if name in ("dedup", "from_dump"):
        from dupq.report.summary import summary
        from dupq.runs.figures import figures_of

        _log.info(summary(made.uri), extra={"fields": figures_of(made.uri)})


def _dumps_of(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the dumps, and the columns of tables, as fields of a job. Raises SettingError if no dump is named."""
    from dupq.dump.files import Columns

    dumps = (*arguments.dumps, *arguments.more_dumps)
    if not dumps:
        command = arguments.job.replace("_", "-")
        raise SettingError(f"which dump or table? Give its file or folder: dupq {command} faq.csv")
    return {"dumps": dumps, "columns": _job_of(Columns, arguments)}


def ingest(arguments: argparse.Namespace) -> None:
    """Turn Stack Exchange dumps, or other tables of questions, into the tables of an archive."""
    from dupq.pipelines.arguments import IngestJob

    _run_on_ray(_job_of(IngestJob, arguments, **_dumps_of(arguments)), arguments)


def train(arguments: argparse.Namespace) -> None:
    """Train an encoder on an archive's own text and duplicate links, with Ray Train."""
    from dupq.pipelines.arguments import TrainingJob

    _run_on_ray(_job_of(TrainingJob, arguments), arguments)


def dedup(arguments: argparse.Namespace) -> None:
    """Find the duplicate questions of an archive."""
    from dupq.pipelines.arguments import DedupJob
    from dupq.pipelines.gates import Gates

    below = f"{arguments.questions.rstrip('/')}/"
    job = _job_of(
        DedupJob,
        arguments,
        gates=_job_of(Gates, arguments, judge=arguments.judge_required),
        skipped=tuple(sorted({path.removeprefix(below) for path in arguments.skipped})),
    )
    _run_on_ray(job, arguments)


def judge(arguments: argparse.Namespace) -> None:
    """Let a language model read the likeliest pairs of a finished run: makes a new run that builds on it."""
    from dupq import storage
    from dupq.pipelines.arguments import with_judge
    from dupq.pipelines.gates import Gates
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    gates = Gates(judge=arguments.judge_required)
    job = with_judge(run, storage.parent(run.uri), _assignments(arguments), gates, arguments.gpus)
    if not job.settings().judge.url:
        raise SettingError(f"{run.uri}: which judge? Name its endpoint with --judge and its model with --judge-model")
    _run_on_ray(job, arguments)


def evaluate(arguments: argparse.Namespace) -> None:
    """Measure an encoder and the baselines on known duplicates, or run the papers' experiments on them."""
    from dupq import system
    from dupq.evaluation.measures import TABLES
    from dupq.pipelines.arguments import EvaluationJob

    names = arguments.table or sorted(TABLES)
    general = tuple(name for name in sorted(TABLES) if name in names or ALL in names)
    papers_tables = tuple(dict.fromkeys(name for name in names if name not in TABLES))
    if not general and (arguments.encoder or arguments.assignments):
        raise SettingError(
            f"--encoder and --set are for the tables {' and '.join(sorted(TABLES))}; name one of these with --table, "
            "or all. The papers' systems have their own settings"
        )
    if not papers_tables and (arguments.pair_set or arguments.quick):
        raise SettingError("--pair-set and --quick are for the papers' tables; name one of these with --table, or all")
    job = _job_of(EvaluationJob, arguments, tables=general)
    checked = job.check() if general else None
    papers = sources = None
    if papers_tables:
        if not system.is_installed("dupq_papers"):
            raise SettingError(
                f"--table {', '.join(papers_tables)}: not among {' and '.join(sorted(TABLES))}, and the papers' tables "
                "need the package dupq-papers, which is not installed (papers/README.md)"
            )
        [module] = system.papers("arguments")
        tables = tuple(module.TABLES) if ALL in names else papers_tables
        archive = arguments.questions, arguments.links, arguments.output
        papers = module.PapersJob(*archive, tables, tuple(arguments.pair_set), arguments.quick)
        sources = papers.check()
    from dupq.job import cluster

    cluster.connect(arguments.ray)
    if general:
        from dupq.pipelines.evaluate import evaluate

        _log.info(evaluate(job, checked))
    if papers:
        [module] = system.papers("job")
        _log.info(module.measure_papers(papers, sources))


def report(arguments: argparse.Namespace) -> None:
    """Write a run's report.html anew."""
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    from dupq.report.page import write  # imports much, so after the check

    print(write(run.uri))


def export(arguments: argparse.Namespace) -> None:
    """Write a finished run for another tool: plain files, what to keep and drop, a graph, a map."""
    from dupq.export import FORMATS, export

    for written in export(arguments.run, arguments.to, arguments.output, arguments.since):
        rows = f"{written.rows:>12,} rows  " if written.rows else " " * 19
        print(f"{rows}{written.uri}" + (f"  ({written.note})" if written.note else ""))
    print(f"open it with: {FORMATS[arguments.to].opened_by.format(output=arguments.output)}")


def plan(arguments: argparse.Namespace) -> None:
    """Say what dedup would take for another number of questions, from what the stages of a finished run took."""
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    from dupq.report.planning import plan, text_of

    planned = plan(run, arguments.questions)
    print(json.dumps(planned, indent=1) if arguments.json else text_of(planned, run.metrics["questions"]))


def from_dump(arguments: argparse.Namespace) -> None:
    """Ingest dumps or tables of questions, train an encoder on them, and find their duplicates."""
    from dupq.pipelines.arguments import FromDumpJob
    from dupq.pipelines.gates import Gates

    if arguments.scope:  # else ingest keeps the column
        is_known = arguments.scope in SCOPES
        setattr(arguments, "neighbours.scope", arguments.scope if is_known else "column")
        arguments.scope = None if is_known else arguments.scope
    dumps = _dumps_of(arguments)
    output = arguments.output or f"out/{_named_after([*arguments.dumps, *arguments.more_dumps][0])}"
    gates = Gates(judge=arguments.judge_required)
    _run_on_ray(_job_of(FromDumpJob, arguments, output=output, gates=gates, **dumps), arguments)


def _named_after(dump: str) -> str:
    """Return a dump's name without its endings; for Posts.xml that of its folder."""
    from dupq import storage

    *_, folder, name = storage.absolute(dump).split("/")
    stem = _ENDINGS.sub("", name)
    return _DOMAIN.sub("", folder if stem.lower() == "posts" else stem) or "dump"


def runs(arguments: argparse.Namespace) -> None:
    """List the runs below an output: their state and size, what they found, and how sure it is."""
    from dupq.runs.figures import listing, table

    listed = listing(arguments.output, datetime.now(UTC))
    print(json.dumps(listed, indent=1) if arguments.json else table(listed))


def prune(arguments: argparse.Namespace) -> None:
    """Remove runs that nothing needs, and what they and trainings left behind."""
    from dupq.runs.inventory import Keep, prune

    keep = Keep(arguments.keep, arguments.keep_monthly)
    for line in prune(arguments.output, arguments.encoder, keep, datetime.now(UTC), arguments.dry_run):
        print(line, flush=True)


def status(arguments: argparse.Namespace) -> None:
    """Say how far a run is."""
    from dupq.runs import figures, inventory

    asked = arguments.run, datetime.now(UTC)
    print(json.dumps(figures.status(*asked), indent=1) if arguments.json else inventory.status(*asked))


def review(arguments: argparse.Namespace) -> None:
    """Judge a run's worklist in a terminal: are the two questions of a pair the same?"""
    from dupq.review import review

    review(arguments.run, arguments.judge, arguments.past)


def serve(arguments: argparse.Namespace) -> None:
    """Show all clusters of a run in a browser, and look new questions up; by default only for this machine."""
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    from dupq.serve.server import Server, serve  # imports much, so after the check

    def stop(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the parent too, which passes it on
        raise KeyboardInterrupt

    def ready(server: Server) -> None:
        signal.signal(signal.SIGINT, stop)
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        print(f"open http://{host}:{server.server_port}/ in a browser; Ctrl-C ends it", flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        serve(run, arguments.host, arguments.port, ready)
    print("server ended")


def warm(arguments: argparse.Namespace) -> None:
    """Compile what jobs call and keep it, so that no run waits for it."""
    # by find_duplicates and, if Ray is installed, by jobs on a small archive, which use a GPU if there is one
    from dupq import find_duplicates
    from dupq.kernel_cache import compile_seconds
    from dupq.system import is_installed

    start = time.monotonic()
    logging.getLogger("dupq").setLevel(logging.WARNING)
    find_duplicates(["How do I bake bread?", "How do I bake some bread?", "Where is my bicycle?"])
    if is_installed("ray"):
        from dupq.job import cluster
        from dupq.job.gpus import gpus_for
        from dupq.pipelines.arguments import FromDumpJob
        from dupq.pipelines.train import from_dump

        cluster.connect("local")
        gpus = gpus_for(arguments.gpus).now()  # a number, as `auto` leaves so few questions to CPUs
        short = ("training.epochs=1", "title_body.epochs=1")
        with tempfile.TemporaryDirectory(prefix="dupq-warm-") as folder:
            dump = _write_small_dump(folder)
            for language in ("english", "german"):  # only German trains word vectors from nothing
                assignments = (*short, f"text.language={language}")
                job = FromDumpJob((dump,), f"{folder}/{language}", "dupq", None, assignments, gpus)
                from_dump(job, job.check())
    logging.getLogger("dupq").setLevel(logging.INFO)
    _log.info(
        f"compiled: {time.monotonic() - start:.0f} s, of which numba took {compile_seconds():.0f} s; a run finds what "
        "was kept"
    )


def _write_small_dump(folder: str) -> str:
    """Write a dump of 300 questions into a local folder and return its URI. Each is asked twice, half are linked."""
    from dupq import storage

    verbs, places = ("bake", "clean", "dry", "fold", "paint"), ("in a small kitchen", "on a balcony", "in the winter")
    things = ("bread", "shirts", "carpets", "bicycles", "mirrors", "windows", "chairs", "roses", "pans", "boots")
    titles = ("How do I {} {} {}?", "What is the best way to {} {} {}?")
    body = "&lt;p&gt;I tried to {} {} {}, and it did not go well. What do I need for it?&lt;/p&gt;"
    row = '<row Id="{}" PostTypeId="1" CreationDate="2024-01-01T00:00:00.000" Score="1" Title="{}" Body="{}" Tags="" />'
    link = '<row Id="{0}" CreationDate="2024-01-02T00:00:00.000" PostId="{0}" RelatedPostId="{1}" LinkTypeId="3" />'
    questions = itertools.product(itertools.product(verbs, things, places), titles)
    posts = [row.format(n, title.format(*words), body.format(*words)) for n, (words, title) in enumerate(questions, 1)]
    links = [link.format(n, n - 1) for n in range(2, len(posts), 4)]
    for file, root, rows in (("Posts.xml", "posts", posts), ("PostLinks.xml", "postlinks", links)):
        lines = "\r\n".join(['<?xml version="1.0" encoding="utf-8"?>', f"<{root}>", *rows, f"</{root}>"])
        storage.write_bytes(f"{folder}/warm.example.com/{file}", lines.encode())
    return f"{folder}/warm.example.com"
