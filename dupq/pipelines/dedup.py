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
    pairs       ──rerank──▶           the probability of likely pairs again, once a sentence model has read them
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

from dupq.archive import partitions
from dupq.clusters.decision import scale_of
from dupq.encoders.saved import read_measure, read_split
from dupq.errors import LeaseError
from dupq.evaluation.sampling import judged
from dupq.evaluation.verdicts import DIFFERENT, VERDICTS_FILE
from dupq.job import progress
from dupq.job.gpus import Gpus, gpus_for, until_the_end
from dupq.job.records import Encoding, RunFiles
from dupq.job.run import Run
from dupq.job.step import Counts
from dupq.job.table import Shards, Table, Whole
from dupq.job.tasks import run_tasks
from dupq.pipelines.arguments import DedupJob, check_gates, check_rows
from dupq.pipelines.opening import OpenedDedup, open_dedup
from dupq.runs import inventory
from dupq.runs.reader import read_metrics
from dupq.settings.config import Settings
from dupq.stages.calibration import calibrate
from dupq.stages.clusters import Decided
from dupq.stages.earlier import earlier_texts, make_texts_since, texts_made_as
from dupq.stages.embeddings import check_fitness, check_room_to_encode, encode_texts
from dupq.stages.measures.links import Facts
from dupq.stages.measures.of_run import measure_run
from dupq.stages.measures.review import draw_review
from dupq.stages.near_duplicates import find_near_duplicates, groups_of, make_signatures
from dupq.stages.pairs import score_pairs
from dupq.stages.partition import Candidates, Known, decide
from dupq.stages.rerank import COLUMNS as READ_COLUMNS
from dupq.stages.rerank import Reading, rerank
from dupq.stages.search.above_threshold import find_beyond_lists
from dupq.stages.search.blocks import SearchRequest
from dupq.stages.search.changes import search
from dupq.stages.search.everything import directed_in, stored_lists
from dupq.stages.terms import make_terms
from dupq.stages.texts import AT_ONCE, COLUMNS
from dupq.stages.worklist import Work, cluster
from dupq.tables import CONTENT_HASHES, CONTENTS

_log = logging.getLogger(__name__)


def dedup(job: DedupJob, checked: Settings | None = None) -> Run:
    """Find the duplicates of an archive and return the finished run.

    `checked` is what `job.check()` returned, if it was called before. The same job over the same data gives the same
    run, and resumes where an earlier attempt stopped. Raises DupqError if an input is missing or wrong.
    """
    opened = open_dedup(job, checked)
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


def _make_tables(opened: OpenedDedup, gpus: Gpus) -> None:
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
    verified, copies = run.make("near_duplicates", find_near_duplicates, *to_compare, dropped="work/near_duplicates")

    fitness = run.make("fitness", check_fitness, texts, encoder, calibration)
    outputs = files.representatives, files.encoded_as, files.embeddings
    encoding = Encoding(files.texts, files.contents, encoder, *outputs)
    encoded = run.stage("encode", lambda: encode_texts(encoding, sites, settings.encode, gpus, previous, earlier()))

    measure, k = read_measure(encoder), settings.neighbours.k
    request = SearchRequest(sites.names, settings.neighbours, measure, partition_count, gpus)
    run.do("neighbours", search, opened.shards, request, previous, dropped="work/neighbours/tiles")
    lists = stored_lists(files)

    joins_links, seen = settings.clusters.known_links == "use", read_split(encoder, sites)
    known = Known(sites, links, joins_links, people, Whole(copies), seen, job.previous)
    to_sample = lists, dataclasses.replace(lists, columns=("key",)), terms, known, fitness, request, calibration
    sampled, model = run.make("calibrate", calibrate, *to_sample, folder="calibration")
    floor, scale = math.inf if model["floor"] is None else model["floor"], scale_of(model, k)
    run.do(
        "beyond_lists", find_beyond_lists, lists, request, floor, folder="neighbours", dropped="work/neighbours/beyond"
    )
    pairs = run.make("pairs", score_pairs, directed_in(files.directed, partition_count), terms, scale)

    candidates = Candidates(pairs.scored, pairs.around, terms, Table(files.embeddings, None, questions.partitions))
    if opened.reranker is not None:
        reading = Reading(opened.reranker, settings.text.code, opened.read_sites, settings.reranker.read == "all")
        shown = dataclasses.replace(questions, columns=READ_COLUMNS)
        hashes = Table(files.contents, CONTENTS, questions.partitions).only(*CONTENT_HASHES.names)
        to_read = pairs, candidates, scale, sampled, model, shown, hashes, request, reading, calibration.prior, previous
        candidates, scale = run.make("rerank", rerank, *to_read)

    target = settings.calibration.precision, settings.clusters.threshold
    thresholds, labels, joined = run.make("partition", decide, candidates, target, texts, known, measure, scale)
    decided = Decided(labels, candidates.scored, joined, verified, thresholds["chosen"]["threshold"])
    share = (scale.reread or scale.model).linked_share
    linked = share if model["development_links"] else 0.0  # unknown without such links
    work = Work(settings.clusters.worklist, rows, k, language, linked)
    tables, worklist = run.make("clusters", cluster, decided, known, texts, questions, terms.rarities, work)

    contradicting = joined.counts(0)["verdicts that others contradict"]
    facts = Facts(
        thresholds,
        model,
        error=model["error"] if scale.reread is None else scale.reread.error,
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


def _finish_again(opened: OpenedDedup) -> None:
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
