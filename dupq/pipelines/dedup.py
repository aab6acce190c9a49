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

import dataclasses
import functools
import math

from dupq import storage
from dupq.archive import partitions
from dupq.clusters.decision import scale_of
from dupq.clusters.steps.ask_teacher import COLUMNS as READ
from dupq.clusters.steps.ask_teacher import Reading, ask_teacher
from dupq.clusters.steps.calibrate import Asked, Known, calibrate
from dupq.clusters.steps.make_clusters import CRITERIA, Decided
from dupq.clusters.steps.make_worklist import Work, cluster
from dupq.clusters.steps.partition_pairs import Candidates, Said, decide
from dupq.clusters.steps.score_pairs import AT_ONCE, COLUMNS, make_terms, score_pairs
from dupq.encoders.saved import read_measure, read_split
from dupq.encoders.steps import check_fitness, check_room_to_encode, encode_texts
from dupq.evaluation.steps.draw_review import draw_review
from dupq.evaluation.steps.measure_run import SAID_COLUMNS, Facts, measure_all
from dupq.evaluation.verdicts import DIFFERENT
from dupq.job.gpus import Gpus, gpus_for, until_the_end
from dupq.job.run import do_stage, make_tables
from dupq.job.run_inputs import earlier_texts, make_texts_since, texts_made_as
from dupq.job.table import Read, Shards, Table, Whole
from dupq.links import links_table
from dupq.near_duplicates.steps import bundles_of, find_near_duplicates, make_signatures
from dupq.neighbours.steps.blocks import SearchRequest
from dupq.neighbours.steps.search_all import directed_in, lists_made
from dupq.neighbours.steps.search_beyond_lists import find_beyond_lists
from dupq.neighbours.steps.search_changes import search
from dupq.pipelines.arguments import DedupJob, check_rows
from dupq.pipelines.open_dedup import Opened, end_again, open_dedup
from dupq.runs import writer
from dupq.runs.records import RunLayout
from dupq.settings.config import Settings
from dupq.tables import CONTENT_HASHES, CONTENTS


def dedup(job: DedupJob, checked: Settings | None = None) -> writer.Run:
    """Find the duplicates of an archive; returns the finished run.

    `checked` is what `job.check()` gave, if it was called before. The same job over the same data gives the same run,
    and continues where an earlier attempt stopped. Raises DupqError if an input is missing or wrong.
    """
    opened = open_dedup(job, checked)
    run = opened.run
    if run.finished:
        end_again(opened)
        return run
    gpus = gpus_for(job.gpus)
    if not run.has_record("encode"):
        made_as = RunLayout(run.uri).encoding.made_as
        check_room_to_encode(made_as, gpus)
    with run.held(), until_the_end():
        opened.copy()
        _find(opened, gpus)
        opened.finish()
    return run


def _find(opened: Opened, gpus: Gpus) -> None:
    """Make all tables of the run."""
    run, job, settings, sites = opened.run, opened.job, opened.settings, opened.sites
    make, do = functools.partial(make_tables, run), functools.partial(do_stage, run)
    encoder, truth, verdicts, links = map(opened.copied, ("encoder", "truth", "verdicts", "links"))
    assert encoder is not None
    links = None if settings.clusters.known_links == "ignore" else links
    files, judged, measure, k = RunLayout(run.uri, encoder), opened.judged, read_measure(encoder), settings.neighbours.k
    calibration = settings.calibration.changed(prior=opened.copied("prior") or "")
    before = None if job.previous is None else RunLayout(job.previous)
    earlier = functools.cache(lambda: earlier_texts(before, texts_made_as(settings.text)))
    questions = Shards(opened.shards, tuple(sites.names), COLUMNS, AT_ONCE)

    made = make("texts", make_texts_since, questions, files.texts_made_as, settings.text, len(job.skipped), earlier)
    rows, texts = run.records[-1]["rows_out"], made.texts
    check_rows(job.gates, rows, job.previous, run.uri)
    parts, near, language = partitions(rows), settings.near_duplicates, settings.text.language
    terms = make("terms", make_terms, texts, questions, language, parts)

    bundles, apart = bundles_of(made), judged.pairs(DIFFERENT)
    signed = make("signatures", make_signatures, bundles, near, sites, parts, folder="near_duplicates")
    given = bundles, signed, terms.rarities, near, language, apart
    copies = make("near_duplicates", find_near_duplicates, *given, dropped="work/near_duplicates")
    represented = Whole(copies.representatives)

    fitness = make("fitness", check_fitness, texts, encoder, calibration)
    encoded = run.stage("encode", lambda: encode_texts(files.encoding, sites, settings.encode, gpus, before, earlier()))
    request = SearchRequest(sites.names, settings.neighbours, measure, parts, gpus)
    do("neighbours", search, opened.shards, request, job.previous)
    lists = lists_made(files.neighbours)
    keys = dataclasses.replace(lists, columns=("key",))

    known = Known(Whole(Read(links_table, (links, sites.names))), represented, read_split(encoder, sites))
    asked = Asked(sites.names, measure, k, judged, calibration)
    sampled, model = make("calibrate", calibrate, lists, keys, terms, known, fitness, asked, folder="calibration")
    floor, scale = math.inf if model["floor"] is None else model["floor"], scale_of(model, k)
    dropped = "work/neighbours/tiles"
    do("beyond_lists", find_beyond_lists, lists, request, floor, folder="neighbours", dropped=dropped)
    scored, around = make("pairs", score_pairs, directed_in(files.neighbours.directed, parts), terms, scale)
    if opened.teacher is not None:
        reading = Reading(opened.teacher, settings.text.code, sites.names)
        shown, said = dataclasses.replace(questions, columns=READ), Table(files.contents, CONTENTS, questions.parts)
        rest = said.only(*CONTENT_HASHES.names), reading, gpus, calibration.prior, before
        do("teacher", ask_teacher, (scored, sampled), shown, *rest)
        scored = dataclasses.replace(scored, folder=run.path("work", "teacher", "scored"))

    used = links if settings.clusters.known_links == "use" else None
    candidates = Candidates(scored, around, terms, Table(run.path("embeddings"), None, questions.parts))
    wanted = settings.calibration.precision, settings.clusters.threshold
    people = Said(texts, used, represented, sites, judged)
    thresholds, labels, held = make("partition", decide, candidates, wanted, people, measure, scale)
    threshold, since = thresholds["chosen"]["threshold"], job.previous and storage.join(job.previous, "clusters")
    decided = Decided(labels, scored, held.joined, represented, copies.verified, links, since)
    share = scale.model.linked_share if model["development_links"] else 0.0  # else nothing tells it
    work = Work(sites.names, judged, settings.clusters.worklist, rows, k, language, share)
    titled = dataclasses.replace(questions, columns=("question_id", "title", "tags"))
    ids = dataclasses.replace(questions, columns=CRITERIA)
    listed = titled, terms.rarities, work
    tables, worklist = make("clusters", cluster, decided, texts, ids, sites, threshold, *listed)

    facts = Facts(
        sites=sites.names,
        thresholds=thresholds,
        calibration=model,
        representatives=encoded["rows_out"],
        judged=judged if opened.verdicts else None,
        contradictions=(opened.contradicted, held.joined.counts(0)["verdicts that others contradict"]),
        verdicts=verdicts,
        truth=truth,
        previous=job.previous,
    )
    dated, has_links = dataclasses.replace(questions, columns=SAID_COLUMNS), links is not None
    do("evaluate", measure_all, tables, worklist, known, texts, dated, has_links, facts, dropped="work/evaluate")
    do("review", draw_review, tables.pairs, titled, sites, settings.calibration.review, run.run_id)
