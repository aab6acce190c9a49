"""The nightly job, stage by stage: questions in, pairs and clusters of duplicates out.

    questions   ──texts──▶            tokens, stems and tags, once for all stages
    texts       ──terms──▶            the stems and tags by question, and how rare each stem is
    texts       ──signatures──▶       exact copies; band keys of the MinHash signatures of all others
    band keys   ──near_duplicates──▶  verified pairs, and a representative of each set of near duplicates
    texts       ──fitness──▶          whether the encoder knows such texts
    texts       ──encode──▶           embeddings of the representatives
    embeddings  ──neighbours──▶       the k nearest questions of each, exactly
    neighbours  ──calibrate──▶        the probability of a pair in this archive, fitted on a sample
    neighbours  ──beyond_lists──▶     likely pairs in which neither question lists the other
    neighbours  ──pairs──▶            the evidence and the probability of all pairs
    pairs       ──teacher──▶          with --teacher: the probability of likely pairs again, with its cosine
    pairs       ──partition──▶        the threshold for the wanted precision, and the best partition above it
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
from dupq.clusters.steps import ask_teacher as teacher
from dupq.clusters.steps.calibrate import calibrate
from dupq.clusters.steps.decide import Candidates, Known, decide, make_terms, score_pairs
from dupq.clusters.steps.make_clusters import Decided, Work, cluster
from dupq.encoders.saved import FILES, encoder_at, read_description, read_measure, read_split
from dupq.encoders.sentence_models import Teacher, teacher_at
from dupq.encoders.steps import check_fitness, check_room_to_encode, encode_texts
from dupq.errors import DupqError, LeaseError
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
from dupq.near_duplicates.steps import find_near_duplicates, groups_of, make_signatures
from dupq.neighbours.steps.blocks import SearchRequest
from dupq.neighbours.steps.search_all import directed_in, stored_lists
from dupq.neighbours.steps.search_beyond_lists import find_beyond_lists
from dupq.neighbours.steps.search_changes import search
from dupq.pipelines.arguments import DedupJob, check_gates, check_rows
from dupq.runs import inventory, progress
from dupq.runs.reader import built_on, previous_run, read_metrics
from dupq.runs.records import DEDUP_VERSIONS, TEACHER_VERSIONS, Encoding, RunFiles
from dupq.settings.config import Settings
from dupq.tables import CONTENT_HASHES, CONTENTS
from dupq.text.keys import Sites
from dupq.text.steps import AT_ONCE, COLUMNS

_log = logging.getLogger(__name__)


def dedup(job: DedupJob, checked: Settings | None = None) -> Run:
    """Find the duplicates of an archive and return the finished run.

    `checked` is what `job.check()` returned, if it was called before. The same job over the same data gives the same
    run, and resumes where an earlier attempt stopped. Raises DupqError if an input is missing or wrong.
    """
    opened = _open(job, checked)
    run = opened.run
    if run.finished:
        _finish_again(opened)
        return run
    gpus = gpus_for(job.gpus)
    if not run.has_record("encode"):
        check_room_to_encode(opened.settings.encode, len(opened.shards), RunFiles(run.uri).encoded_as, gpus)
    with run.held(), until_the_end():
        run.stage("inputs", opened.copy_inputs)
        _make_tables(opened, gpus)
        run.describe()
        run_tasks("report", _write_report, [(run.uri,)])
        check_gates(job.gates, read_metrics(run.uri), run.uri)
        run.mark()
        run.point_latest()
        if not opened.settings.run.keep_work:
            inventory.tidy_at_end(run.uri)
        progress.end(run.uri, "finished")
    return run


@dataclass(frozen=True)
class _Opened:
    """An opened run, and its inputs as they were then.

    An ingest, a training or another night may replace an input at any moment. So what `latest.json` names is resolved
    once, shards are pinned, and the files that are read more than once are listed with their checksums, to be copied.
    """

    run: Run
    settings: Settings
    shards: tuple[Shard, ...]  # of the questions
    sites: Sites
    job: DedupJob  # with the folders that its encoder and earlier run resolve to
    teacher: Teacher | None
    verdicts: list[Verdict]  # the last one on each pair
    contradicted: int  # verdicts that a later one on the same pair replaced

    def copy_inputs(self) -> Report:
        """Copy what is read more than once into the run, and write the verdicts. Raises as `Run.copy_inputs`."""
        if self.verdicts:
            storage.write_bytes(self.run.path(VERDICTS_FILE), format_verdicts(self.verdicts).encode())
        return self.run.copy_inputs()


def _open(job: DedupJob, checked: Settings | None) -> _Opened:
    """Open the run of a nightly job. Raises DupqError if an input is missing or wrong."""
    job = dataclasses.replace(job, encoder=encoder_at(job.encoder), previous=previous_run(job.previous))
    settings = checked or job.check()
    shards, sites = question_shards(job.questions, job.skipped)
    shards = pinned(shards)
    encoder, description = input_files(job.encoder, "encoder", FILES), read_description(job.encoder)
    if job.settings() != settings:  # read after the checksums: copies that match these have these settings
        raise DupqError(f"{job.encoder}: {storage.CHANGED}")
    optional = {"links": job.links, "truth": job.truth, "verdicts": job.verdicts, "prior": settings.calibration.prior}
    copied = {"encoder": encoder} | {name: input_files(uri, name) for name, uri in optional.items() if uri}
    teacher = None if job.teacher is None else teacher_at(job.teacher, "--teacher ")
    verdicts, contradicted = last_verdicts(job.verdict_files(job.previous))
    made_from: dict[str, object] = {
        "encoder": encoder_content(description["fingerprint"], encoder),
        "questions": content_of(job.questions, shards),
    }
    rest = {"skipped_shards": sorted(job.skipped), "teacher": teacher and teacher.fingerprint, "judged": verdicts}
    made_from |= {name: value for name, value in rest.items() if value}
    uris = {name: getattr(job, name) for name in ("questions", "links", "encoder", "truth", "verdicts")}
    inputs = {name: storage.absolute(uri) if uri else None for name, uri in uris.items()}
    inputs["language"] = description["metrics"].get("language")  # in words, with how training determined it
    inputs |= {"teacher": job.teacher} if job.teacher else {}
    inputs |= {"skipped_shards": ", ".join(job.skipped)} if job.skipped else {}
    versions = DEDUP_VERSIONS | (TEACHER_VERSIONS if job.teacher else {})

    def run_since(previous: str | None) -> Run:
        since = {"previous": storage.absolute(previous) if previous else None}
        content = {"previous": storage.name(previous) if previous else None}  # cluster ids and changes depend on it
        return Run.open(job.output, inputs | since, made_from | content, settings, versions, copied)

    run = run_since(job.previous)
    if job.previous is not None:
        # A job that is repeated after its run became the latest finds its own run as the earlier one, and resumes it.
        before = built_on(job.previous)
        own = run_since(before)
        if own.uri == job.previous:
            job, run = dataclasses.replace(job, previous=before), own
    return _Opened(run, settings, tuple(shards), sites, job, teacher, verdicts, contradicted)


def _make_tables(opened: _Opened, gpus: Gpus) -> None:
    run, job, settings, sites = opened.run, opened.job, opened.settings, opened.sites
    encoder, truth, verdicts, links = map(run.copy_of, ("encoder", "truth", "verdicts", "links"))
    assert encoder is not None
    links = None if settings.clusters.known_links == "ignore" else links
    files, calibration = RunFiles(run.uri), settings.calibration.changed(prior=run.copy_of("prior") or "")
    previous = None if job.previous is None else RunFiles(job.previous)
    earlier = functools.cache(lambda: earlier_texts(previous, texts_made_as(settings.text)))
    questions = Shards(opened.shards, tuple(sites.names), COLUMNS, AT_ONCE)

    made = run.make("texts", make_texts_since, questions, files.texts_made_as, settings.text, len(job.skipped), earlier)
    rows, texts = run.records[-1]["rows_out"], made.texts
    check_rows(job.gates, rows, job.previous, run.uri)
    partition_count, near, language = partitions(rows), settings.near_duplicates, settings.text.language
    terms = run.make("terms", make_terms, made, partition_count)

    people, groups = judged(opened.verdicts, sites, VERDICTS_FILE), groups_of(settings.neighbours, sites.names)
    to_sign = made, rows, near, sites, partition_count, groups
    signed = run.make("signatures", make_signatures, *to_sign, folder="near_duplicates")
    to_compare = made, rows, signed, terms.rarities, near, language, people.of(DIFFERENT)
    copies = run.make("near_duplicates", find_near_duplicates, *to_compare, dropped="work/near_duplicates")

    fitness = run.make("fitness", check_fitness, texts, encoder, calibration)
    outputs = files.representatives, files.encoded_as, files.embeddings
    encoding = Encoding(files.texts, files.contents, encoder, *outputs)
    encoded = run.stage("encode", lambda: encode_texts(encoding, sites, settings.encode, gpus, previous, earlier()))

    measure, k = read_measure(encoder), settings.neighbours.k
    request = SearchRequest(sites.names, settings.neighbours, measure, partition_count, gpus)
    run.do("neighbours", search, opened.shards, request, previous, dropped="work/neighbours/tiles")
    lists = stored_lists(files)

    joins_links, seen = settings.clusters.known_links == "use", read_split(encoder, sites)
    known = Known(sites, links, joins_links, people, Whole(copies.representatives), seen, job.previous)
    to_sample = lists, dataclasses.replace(lists, columns=("key",)), terms, known, fitness, request, calibration
    sampled, model = run.make("calibrate", calibrate, *to_sample, folder="calibration")
    floor, scale = math.inf if model["floor"] is None else model["floor"], scale_of(model, k)
    run.do(
        "beyond_lists", find_beyond_lists, lists, request, floor, folder="neighbours", dropped="work/neighbours/beyond"
    )
    scored, around = run.make("pairs", score_pairs, directed_in(files.directed, partition_count), terms, scale)

    if opened.teacher is not None:
        reading = teacher.Reading(opened.teacher, settings.text.code, sites.names)
        shown = dataclasses.replace(questions, columns=teacher.COLUMNS)
        hashes = Table(files.contents, CONTENTS, questions.partitions).only(*CONTENT_HASHES.names)
        to_read = (scored, sampled), shown, hashes, reading, gpus, calibration.prior, previous
        run.do("teacher", teacher.ask_teacher, *to_read)
        scored = dataclasses.replace(scored, folder=run.path("work", "teacher", "scored"))

    candidates = Candidates(scored, around, terms, Table(files.embeddings, None, questions.partitions))
    target = settings.calibration.precision, settings.clusters.threshold
    thresholds, labels, joined = run.make("partition", decide, candidates, target, texts, known, measure, scale)
    decided = Decided(labels, scored, joined, copies.verified, thresholds["chosen"]["threshold"])
    linked = scale.model.linked_share if model["development_links"] else 0.0  # unknown without such links
    work = Work(settings.clusters.worklist, rows, k, language, linked)
    tables, worklist = run.make("clusters", cluster, decided, known, texts, questions, terms.rarities, work)

    contradicting = joined.counts(0)["verdicts that others contradict"]
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


def _write_report(run: str) -> Counts:
    """Write the report in a task: it holds a file of each table, and up to 4 million pairs, 24 bytes each."""
    from dupq.report import page  # only this task needs what it imports

    page.write(run)
    return {}


def _finish_again(opened: _Opened) -> None:
    """Do what a finished run lacks because its job was killed at the end. Takes no lease if it lacks nothing."""
    run = opened.run
    _log.info(f"run {run.run_id} is finished already")
    check_gates(opened.job.gates, read_metrics(run.uri), run.uri, has_succeeded=True)
    if run.is_to_be_latest:
        with run.held():
            run.point_latest()
    if not opened.settings.run.keep_work and inventory.tidy_at_end(run.uri, really=False):
        with contextlib.suppress(LeaseError), run.held():  # a job that holds it is at its end, and tidies too
            inventory.tidy_at_end(run.uri)
