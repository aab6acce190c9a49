"""The nightly job, stage after stage: questions in, pairs and clusters of duplicates out.

    questions   ──texts──▶            tokens, once for all stages
    texts       ──terms──▶            stems and tags of every question, and how rare each is
    texts       ──signatures──▶       exact copies; band keys of the MinHash signatures of all others
    band keys   ──near_duplicates──▶  verified pairs, representatives
    texts       ──fitness──▶          whether the encoder knows such texts
    texts       ──encode──▶           embeddings of the representatives
    embeddings  ──neighbours──▶       the k nearest questions of each, exactly
    neighbours  ──calibrate──▶        the probability of a pair in this archive, from a sample's neighbours
    neighbours  ──beyond_lists──▶     the pairs above a floor of probability that are in no list
    neighbours  ──pairs──▶            their evidence and probability, and the threshold for the wanted precision
    pairs       ──teacher──▶          with --teacher: likely pairs again, with what it says of them
    pairs       ──partition──▶        of each component of sure pairs the best partition
    partition   ──clusters──▶         pairs, clusters, cluster_stats, changes since an earlier run; the worklist
    run         ──evaluate──▶         metrics.json: counts, and quality on known duplicates
    pairs       ──review──▶           review.tsv: a sample of pairs for people to judge
    run         ──report──▶           report.html

Each stage makes tables from tables (dupq/job/run.py); the driver holds none of their rows.
"""

import contextlib
import dataclasses
import functools
import logging
import math
from dataclasses import dataclass

from dupq import storage
from dupq.archive import Shard, partitions, pinned, question_shards
from dupq.clusters.decision import scale_of
from dupq.clusters.steps.ask_teacher import COLUMNS as READ
from dupq.clusters.steps.ask_teacher import Reading, ask_teacher
from dupq.clusters.steps.calibrate import calibrate
from dupq.clusters.steps.decide import AT_ONCE, COLUMNS, Candidates, Known, decide, make_terms, score_pairs
from dupq.clusters.steps.make_clusters import Decided, Work, cluster
from dupq.encoders.saved import FILES, encoder_at, read_description, read_measure, read_split
from dupq.encoders.sentence_models import Teacher, teacher_at
from dupq.encoders.steps import check_fitness, check_room_to_encode, encode_texts
from dupq.errors import LeaseError
from dupq.evaluation.sampling import judged
from dupq.evaluation.steps import Facts, draw_review, measure_run
from dupq.evaluation.verdicts import DIFFERENT, VERDICTS_FILE, Verdict, format_verdicts, last_verdicts
from dupq.job.earlier import earlier_texts, make_texts_since, texts_made_as
from dupq.job.gpus import Gpus, gpus_for, until_the_end
from dupq.job.inputs import content_of, encoder_content, input_files
from dupq.job.run import Run
from dupq.job.step import Counts
from dupq.job.table import Shards, Table, Whole
from dupq.job.tasks import Report, run_tasks
from dupq.near_duplicates.steps import bundles_of, find_near_duplicates, make_signatures
from dupq.neighbours.steps.blocks import SearchRequest
from dupq.neighbours.steps.search_all import directed_in, lists_made
from dupq.neighbours.steps.search_beyond_lists import find_beyond_lists
from dupq.neighbours.steps.search_changes import search
from dupq.pipelines.arguments import DedupJob, check_encoder_copy, check_gates, check_rows
from dupq.report import page
from dupq.runs import inventory, progress
from dupq.runs.reader import built_on, previous_run, read_metrics
from dupq.runs.records import DEDUP_VERSIONS, TEACHER_VERSIONS, Encoding, RunFiles
from dupq.settings.config import Settings
from dupq.tables import CONTENT_HASHES, CONTENTS
from dupq.text.keys import Sites

_log = logging.getLogger(__name__)


def dedup(job: DedupJob, checked: Settings | None = None) -> Run:
    """Find the duplicates of an archive; returns the finished run.

    `checked` is what `job.check()` gave, if it was called before. The same job over the same data gives the same run,
    and continues where an earlier attempt stopped. Raises DupqError if an input is missing or wrong.
    """
    opened = _open(job, checked)
    run = opened.run
    if run.finished:
        _end_again(opened)
        return run
    gpus = gpus_for(job.gpus)
    if not run.has_record("encode"):
        check_room_to_encode(opened.settings.encode, len(opened.shards), RunFiles(run.uri).encoded_as, gpus)
    with run.held(), until_the_end():
        run.stage("inputs", functools.partial(_copy_inputs, opened))
        check_encoder_copy(opened.job, str(run.copy_of("encoder")), opened.settings, opened.fingerprint)
        _find(opened, gpus)
        run.describe()
        _write_report(run)
        check_gates(job.gates, read_metrics(run.uri), run.uri)
        run.mark()
        run.point_latest()
        if not opened.settings.run.keep_work:
            inventory.tidy_at_end(run.uri)
        progress.end(run.uri, "finished")
    return run


def _find(opened: "_Opened", gpus: Gpus) -> None:
    """Make all tables of the run."""
    run, job, settings, sites = opened.run, opened.job, opened.settings, opened.sites
    encoder, truth, verdicts, links = map(run.copy_of, ("encoder", "truth", "verdicts", "links"))
    assert encoder is not None
    links = None if settings.clusters.known_links == "ignore" else links
    files, measure, k = RunFiles(run.uri), read_measure(encoder), settings.neighbours.k
    people = judged(opened.verdicts, sites, VERDICTS_FILE)
    calibration = settings.calibration.changed(prior=run.copy_of("prior") or "")
    before = None if job.previous is None else RunFiles(job.previous)
    earlier = functools.cache(lambda: earlier_texts(before, texts_made_as(settings.text)))
    questions = Shards(opened.shards, tuple(sites.names), COLUMNS, AT_ONCE)

    made = run.make("texts", make_texts_since, questions, files.texts_made_as, settings.text, len(job.skipped), earlier)
    rows, texts = run.records[-1]["rows_out"], made.texts
    check_rows(job.gates, rows, job.previous, run.uri)
    parts, near, language = partitions(rows), settings.near_duplicates, settings.text.language
    terms = run.make("terms", make_terms, texts, questions, language, parts)

    bundles, apart = bundles_of(made), people.pairs(DIFFERENT)
    signed = run.make("signatures", make_signatures, bundles, near, sites, parts, folder="near_duplicates")
    given = bundles, signed, terms.rarities, near, language, apart
    copies = run.make("near_duplicates", find_near_duplicates, *given, dropped="work/near_duplicates")
    represented = Whole(copies.representatives)

    fitness = run.make("fitness", check_fitness, texts, encoder, calibration)
    outputs = files.representatives, files.encoded_as, files.embeddings
    encoding = Encoding(files.texts, files.contents, encoder, *outputs)
    encoded = run.stage("encode", lambda: encode_texts(encoding, sites, settings.encode, gpus, before, earlier()))
    request = SearchRequest(sites.names, settings.neighbours, measure, parts, gpus)
    run.do("neighbours", search, opened.shards, request, before)
    lists = lists_made(files)
    keys = dataclasses.replace(lists, columns=("key",))

    joins_links, seen = settings.clusters.known_links == "use", read_split(encoder, sites)
    known = Known(sites, links, joins_links, people, represented, seen, job.previous)
    asked = fitness, request, calibration
    sampled, model = run.make("calibrate", calibrate, lists, keys, terms, known, *asked, folder="calibration")
    floor, scale = math.inf if model["floor"] is None else model["floor"], scale_of(model, k)
    dropped = "work/neighbours/tiles"
    run.do("beyond_lists", find_beyond_lists, lists, request, floor, folder="neighbours", dropped=dropped)
    scored, around = run.make("pairs", score_pairs, directed_in(files.directed, parts), terms, scale)
    if opened.teacher is not None:
        reading = Reading(opened.teacher, settings.text.code, sites.names)
        shown, said = (
            dataclasses.replace(questions, columns=READ),
            Table(files.contents, CONTENTS, questions.partitions),
        )
        rest = said.only(*CONTENT_HASHES.names), reading, gpus, calibration.prior, before
        run.do("teacher", ask_teacher, (scored, sampled), shown, *rest)
        scored = dataclasses.replace(scored, folder=run.path("work", "teacher", "scored"))

    candidates = Candidates(scored, around, terms, Table(files.embeddings, None, questions.partitions))
    wanted = settings.calibration.precision, settings.clusters.threshold
    thresholds, labels, held = run.make("partition", decide, candidates, wanted, texts, known, measure, scale)
    decided = Decided(labels, scored, held.joined, copies.verified, thresholds["chosen"]["threshold"])
    share = scale.model.linked_share if model["development_links"] else 0.0  # else nothing tells it
    work = Work(settings.clusters.worklist, rows, k, language, share)
    tables, worklist = run.make("clusters", cluster, decided, known, texts, questions, terms.rarities, work)

    contradicting = held.joined.counts(0)["verdicts that others contradict"]
    facts = Facts(
        thresholds,
        model,
        representatives=encoded["rows_out"],
        contradictions=(opened.contradicted, contradicting) if opened.verdicts else None,
        verdicts=verdicts,
        truth=truth,
    )
    run.do("evaluate", measure_run, tables, worklist, known, texts, questions, facts, dropped="work/evaluate")
    run.do("review", draw_review, tables.pairs, questions, sites, settings.calibration.review, run.run_id)


@dataclass(frozen=True)
class _Opened:
    """A run that is new or begun, and what it is made from, as it was when the run was opened."""

    run: Run
    job: DedupJob  # whose encoder and earlier run are folders of their own
    settings: Settings
    shards: tuple[Shard, ...]  # of the questions
    sites: Sites
    fingerprint: str  # of the encoder
    teacher: Teacher | None
    verdicts: list[Verdict]  # of each pair the last
    contradicted: int  # verdicts that a later one on the same pair replaced


def _open(job: DedupJob, checked: Settings | None) -> _Opened:
    """Open the run of a job. Raises DupqError if an input is missing or wrong."""
    # once: what latest.json names, of the encoder or of the runs, may be another one a moment later
    job = dataclasses.replace(job, encoder=encoder_at(job.encoder), previous=previous_run(job.previous))
    settings, description = checked or job.check(), read_description(job.encoder)
    found, sites = question_shards(job.questions, job.skipped)
    shards = pinned(found)
    read_often = {"links": job.links, "truth": job.truth, "verdicts": job.verdicts, "prior": settings.calibration.prior}
    copied = {"encoder": input_files(job.encoder, "encoder", FILES)}
    copied |= {name: input_files(uri, name) for name, uri in read_often.items() if uri}
    teacher = None if job.teacher is None else teacher_at(job.teacher, "--teacher ")
    verdicts, contradicted = last_verdicts(job.judged_in(job.previous))
    made_from: dict[str, object] = {
        "encoder": encoder_content(description["fingerprint"], copied["encoder"]),
        "questions": content_of(job.questions, shards),
    }
    optional = {"skipped_shards": sorted(job.skipped), "teacher": teacher and teacher.fingerprint, "judged": verdicts}
    made_from |= {name: value for name, value in optional.items() if value}
    language = description["metrics"].get("language")  # and how training knew it

    def run_of(job: DedupJob) -> Run:
        earlier = storage.name(job.previous) if job.previous else None  # ids and changes are made from it
        stages = DEDUP_VERSIONS | (TEACHER_VERSIONS if job.teacher else {})
        inputs = _inputs(job) | {"language": language}
        return Run.open(job.output, inputs, made_from | {"previous": earlier}, settings, stages, copied)

    run = run_of(job)
    if job.previous is not None:
        # A job that is started again after its run became the latest one names that as the earlier run: it goes on.
        before = dataclasses.replace(job, previous=built_on(job.previous))
        own = run_of(before)
        if own.uri == job.previous:
            job, run = before, own
    fingerprint = description["fingerprint"]
    return _Opened(run, job, settings, tuple(shards), sites, fingerprint, teacher, verdicts, contradicted)


def _inputs(job: DedupJob) -> dict[str, str | None]:
    """Return the URIs of a job's inputs, for the manifest."""
    named = {"questions": job.questions, "links": job.links, "encoder": job.encoder, "truth": job.truth}
    named |= {"previous": job.previous, "verdicts": job.verdicts}
    inputs = {name: storage.absolute(uri) if uri else None for name, uri in named.items()}
    inputs |= {"teacher": job.teacher} if job.teacher else {}
    return inputs | ({"skipped_shards": ", ".join(job.skipped)} if job.skipped else {})


def _copy_inputs(opened: _Opened) -> Report:
    if opened.verdicts:
        storage.write_bytes(opened.run.path(VERDICTS_FILE), format_verdicts(opened.verdicts).encode())
    return opened.run.copy_inputs()


def _write_report(run: Run) -> None:
    """Write the report in a task: it holds a file of each table at a time, and up to 4 million pairs, 24 bytes each."""
    run_tasks("report", _write_page, [(run.uri,)])


def _write_page(run: str) -> Counts:
    page.write(run)
    return {}


def _end_again(opened: _Opened) -> None:
    """Do what a finished run lacks of its end, as its job was killed there; if it lacks nothing, no lease is taken."""
    run, job = opened.run, opened.job
    _log.info(f"run {run.run_id} is finished already")
    if not storage.exists(run.path("report.html")):
        with run.held():
            _write_report(run)
    check_gates(job.gates, read_metrics(run.uri), run.uri, has_succeeded=True)
    if run.is_to_be_latest:
        with run.held():
            run.point_latest()
    if not opened.settings.run.keep_work and inventory.tidy_at_end(run.uri, really=False):
        with contextlib.suppress(LeaseError), run.held():  # who has it is at the end of the same run, and tidies too
            inventory.tidy_at_end(run.uri)
