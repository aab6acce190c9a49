"""The nightly job, stage by stage: questions in, pairs and clusters of duplicates out.

    questions   ──texts──▶            tokens, stems and tags, once for all stages
    texts       ──terms──▶            the stems and tags by question, and how rare each stem is
    questions   ──scopes──▶           which of them may be compared; only with --scope or --window
    texts       ──signatures──▶       exact copies; band keys of the MinHash signatures of all others
    band keys   ──near_duplicates──▶  verified pairs, and a representative of each set of near duplicates
    texts       ──fitness──▶          whether the encoder knows such texts
    texts       ──encode──▶           embeddings of the representatives
    embeddings  ──neighbours──▶       the k nearest questions of each, exactly
    neighbours  ──calibrate──▶        the probability of a pair in this archive, fitted on a sample
    neighbours  ──beyond_lists──▶     likely pairs in which neither question lists the other
    neighbours  ──pairs──▶            the evidence and the probability of all pairs
    pairs       ──rerank──▶           the probability of likely pairs again, once a sentence model has read them
    pairs       ──judge──▶            the same, once a language model has read the likeliest; only on request
    pairs       ──partition──▶        the threshold for the wanted precision, and the best partition above it
    partition   ──clusters──▶         pairs, clusters, cluster_stats, changes since an earlier run; the worklist
    run         ──evaluate──▶         metrics.json: counts, and quality on known duplicates
    pairs       ──review──▶           review.tsv: a sample of pairs for people to judge
    run         ──report──▶           report.html

Each stage makes tables from tables (dupq/job/run.py); the driver holds none of their rows.
"""

import logging
from dataclasses import replace

from dupq.archive import partitions
from dupq.clusters.decision import scorer_of_pairs
from dupq.clusters.reranking import Reread
from dupq.encoders.saved import read_measure, read_split
from dupq.evaluation.sampling import judged
from dupq.evaluation.verdicts import DIFFERENT, VERDICTS_FILE
from dupq.job import progress
from dupq.job.gpus import Gpus, gpus_for, until_the_end
from dupq.job.records import is_to_be_latest, point_latest
from dupq.job.run import Run
from dupq.job.step import Counts
from dupq.job.table import Shards
from dupq.job.tasks import run_tasks
from dupq.judging.trust import LEAST_SURE
from dupq.pipelines.arguments import DedupJob
from dupq.pipelines.gates import check_gates, check_rows
from dupq.pipelines.opening import OpenedDedup, open_dedup
from dupq.runs import figures, inventory
from dupq.runs.reader import read_metrics
from dupq.settings.config import Settings
from dupq.stages.calibration import calibrate
from dupq.stages.clusters import PartitionResult
from dupq.stages.embeddings import ToEncode, check_fitness, check_room_to_encode, embed
from dupq.stages.inputs import contents_of, copy_inputs
from dupq.stages.judge import judge, judging_of
from dupq.stages.measures.of_run import MeasureInputs, measure_run
from dupq.stages.measures.review import draw_review
from dupq.stages.near_duplicates import find_near_duplicates, groups_of, make_signatures
from dupq.stages.pairs import score_pairs
from dupq.stages.partition import Candidates, RunKnowledge, decide
from dupq.stages.reading import Reading
from dupq.stages.rerank import rerank
from dupq.stages.scopes import make_scopes
from dupq.stages.search.above_threshold import find_pairs_above, with_pairs_above
from dupq.stages.search.blocks import SearchRequest
from dupq.stages.search.search import search
from dupq.stages.terms import make_terms
from dupq.stages.texts import AT_ONCE, make_texts, texts_made_as
from dupq.stages.worklist import WorklistOptions, cluster
from dupq.tables import QUESTIONS

_log = logging.getLogger(__name__)
STAGES = (
    *(copy_inputs, make_texts, make_terms, make_scopes, make_signatures, find_near_duplicates, check_fitness, embed),
    search,
    *(calibrate, find_pairs_above, score_pairs, rerank, judge, decide, cluster, measure_run, draw_review),
)  # their versions are part of a run's identity


def dedup(job: DedupJob, checked: Settings | None = None) -> Run:
    """Find the duplicates of an archive and return the finished run.

    `checked` is what `job.check()` returned, if it was called before. The same job over the same data gives the same
    run, and resumes where an earlier attempt stopped. Raises DupqError if an input is missing or wrong.
    """
    progress.phase("finding copies")
    opened = open_dedup(job, checked, STAGES)
    run = opened.run
    if run.finished:
        _finish_again(opened)
        return run
    gpus = gpus_for(job.gpus)
    check_room_to_encode(opened.settings.encode, len(opened.shards), run.uri, gpus)
    with run.held(), until_the_end():
        _make_tables(opened, gpus)
        run.describe()
        progress.phase("writing the report")
        run_tasks("report", _write_report, [(run.uri,)])
        check_gates(job.gates, read_metrics(run.uri), run.uri)
        run.mark()
        _finish(opened)
        progress.end(run.uri, "finished")
    return run


def _make_tables(opened: OpenedDedup, gpus: Gpus) -> None:
    run, job, settings, sites = opened.run, opened.job, opened.settings, opened.sites
    encoder, links = str(run.copy_of("encoder")), run.copy_of("links")
    links = None if settings.clusters.known_links == "ignore" else links
    prior, k = run.copy_of("prior") or "", settings.neighbours.k
    calibration, language = settings.calibration.changed(prior=prior), settings.text.language
    questions = Shards(opened.shards, tuple(sites.names), QUESTIONS, batch_rows=AT_ONCE)
    people = judged(opened.verdicts, sites, VERDICTS_FILE)
    copy_inputs(run, opened.verdicts)

    texts = make_texts(run, questions, settings.text, len(job.skipped))
    rows = texts.texts.rows
    check_rows(job.gates, rows, job.previous, run.uri)
    count = partitions(rows)
    terms = make_terms(run, texts, count)

    groups = groups_of(settings.neighbours, sites.names)
    scopes = make_scopes(run, questions, settings.neighbours) if settings.neighbours.has_scopes else None
    signed = make_signatures(run, texts, settings.near_duplicates, sites, count, groups, scopes)
    near = find_near_duplicates(
        run, texts, signed, terms.rarities, settings.near_duplicates, language, people.of(DIFFERENT), scopes
    )
    scopes = scopes and scopes._replace(grouped=near.grouped)

    progress.phase("comparing all pairs")
    fitness = check_fitness(run, texts.texts, encoder, calibration)
    before = make_texts.answer_in(run.previous, texts_made_as(settings.text))
    to_encode = ToEncode(texts.texts, texts.contents, near.representatives)
    known_contents = None if before is None else contents_of(before.contents, before.sites)
    embedded = embed(run, to_encode, encoder, sites, settings.encode, gpus, known_contents)

    measure = read_measure(encoder)
    request = SearchRequest(sites.names, settings.neighbours, measure, count, gpus, scopes)
    found = search(run, embedded.embeddings, opened.shards, request)

    progress.phase("weighing the likely pairs")
    joins_links, seen = settings.clusters.known_links == "use", read_split(encoder, sites)
    known = RunKnowledge(sites, links, joins_links, people, near.representatives, seen, run.previous)
    labels = known if opened.verdicts_calibrate else replace(known, judged=judged([], sites, VERDICTS_FILE))
    fitted = calibrate(run, found.nearest, terms, labels, fitness, measure, k, calibration)
    above = find_pairs_above(run, found, request, fitted.model["floor"])
    scale = scorer_of_pairs(fitted.model, k)
    pairs = score_pairs(run, with_pairs_above(found.directed, above), terms, scale)

    candidates = Candidates(pairs.scored, pairs.title_context, terms, embedded.embeddings)
    if opened.reranker is not None:
        reads_all = settings.reranker.read == "all"
        reading = Reading(opened.reranker, settings.text.code, opened.read_sites, reads_all, prior)
        reranked = rerank(run, pairs, candidates, fitted, questions, texts.contents, request, reading)
        candidates = candidates._replace(scored=reranked.scored, read=reranked.read)
        scale = scale._replace(reread=Reread(**reranked.model))

    answered, least_sure = None, 0.5
    if settings.judge.url:
        judging = judging_of(settings.judge, settings.text.code, run.uri, job.gates.judge)
        answered = judge(run, candidates.scored, questions, sites, people, judging)
        candidates = candidates._replace(scored=answered.scored)
        least_sure = LEAST_SURE if answered.summary["is_used"] else least_sure

    progress.phase("forming groups")
    target = settings.calibration.precision, settings.clusters.threshold
    decided = decide(run, candidates, target, texts.texts, known, measure, scale, least_sure)
    share = (scale.reread or scale.model).linked_share
    linked = share if fitted.model["development_links"] else 0.0  # unknown without such links
    options = WorklistOptions(settings.clusters.worklist, rows, k, language, linked)
    threshold = decided.thresholds["chosen"]["threshold"]
    kept = scopes, settings.clusters.earlier
    decisions = PartitionResult(decided.labels, candidates.scored, decided.joined, near.verified, threshold, *kept)
    answers = None if answered is None else answered.answers
    tables, worklist = cluster(run, decisions, known, texts.texts, questions, terms.rarities, options, answers)

    inputs = MeasureInputs(
        decided.thresholds,
        fitted.model,
        error=fitted.model["error"] if scale.reread is None else scale.reread.error,
        representatives=embedded.embeddings.rows,
        contradictions=(opened.contradicted, decided.contradicting) if opened.verdicts else None,
        verdicts=run.copy_of("verdicts"),
        truth=run.copy_of("truth"),
        judge=None if answered is None else answered.summary,
    )
    measure_run(run, tables, worklist, known, texts.texts, questions, inputs)
    draw_review(run, tables.pairs, questions, sites, settings.calibration.review, run.run_id)


def _write_report(run: str) -> Counts:
    """Write the report in a task: it holds a file of each table, and up to 4 million pairs, 24 bytes each."""
    from dupq.report import page  # only this task needs what it imports

    page.write(run)
    return {}


def _finish(opened: OpenedDedup) -> None:
    """Publish the figures of a run that succeeded, and then the run; and remove the work that nothing needs."""
    run = opened.run.uri
    if is_to_be_latest(run):
        figures.write(run)
    point_latest(run)
    if not opened.settings.run.keep_work:
        inventory.tidy_at_end(run)


def _finish_again(opened: OpenedDedup) -> None:
    """Do what a finished run lacks because its job was killed at the end. Takes no lease if it lacks nothing."""
    run = opened.run
    _log.info(f"run {run.run_id} is finished already")
    check_gates(opened.job.gates, read_metrics(run.uri), run.uri, has_succeeded=True)
    has_work = not opened.settings.run.keep_work and inventory.tidy_at_end(run.uri, really=False)
    if has_work or is_to_be_latest(run.uri):
        with run.held():
            _finish(opened)
