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

Each stage reads files and writes files; the driver holds none of their rows.
"""

import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import Callable

from dupq import storage
from dupq.clusters.scoring import scale_of
from dupq.clusters.steps import make_terms as terms_stage
from dupq.clusters.steps.ask_teacher import COLUMNS as READ
from dupq.clusters.steps.ask_teacher import Reading, ask_teacher
from dupq.clusters.steps.calibrate import Asked, Known, calibrate
from dupq.clusters.steps.make_clusters import CRITERIA, Clustered, Decided, make_clusters
from dupq.clusters.steps.make_terms import make_terms
from dupq.clusters.steps.make_worklist import Work, make_worklist
from dupq.clusters.steps.partition_pairs import Candidates, Cut, Held, hold, partition_pairs
from dupq.clusters.steps.score_pairs import choose_threshold, score_pairs
from dupq.clusters.thresholds import Thresholds
from dupq.encoders import description
from dupq.encoders.description import encoder_at, read_description, read_measure, read_split
from dupq.encoders.sentence_models import Teacher, teacher_at
from dupq.encoders.steps.check_fitness import check_fitness
from dupq.errors import DupqError, LeaseError
from dupq.evaluation.steps.draw_review import draw_review
from dupq.evaluation.steps.measure_links import SAID_COLUMNS, measure_links
from dupq.evaluation.steps.measure_run import Facts, measure_run
from dupq.evaluation.verdict_files import judged as judged_keys
from dupq.evaluation.verdicts import DIFFERENT, VERDICTS_FILE, Verdict, format_verdicts, last_verdicts
from dupq.execution.gpu_workers import until_the_end
from dupq.execution.gpus import Gpus, gpus_for
from dupq.execution.tasks import Report
from dupq.job.run import Run, make_tables
from dupq.job.table import Read, Shards, Table, Whole
from dupq.links.tables import links_table
from dupq.near_duplicates.steps import bundles_of, find_near_duplicates, make_signatures
from dupq.neighbours.steps.blocks import SearchRequest
from dupq.neighbours.steps.search_beyond_lists import find_beyond_lists
from dupq.neighbours.steps.search_changes import find_neighbours_since
from dupq.neighbours.steps.search_tiles import directed_in, find_neighbours, lists_made
from dupq.pipelines.arguments import DedupJob
from dupq.pipelines.gates import check_gates, check_rows
from dupq.runs import progress, tidying, versions, writer
from dupq.runs.layout import NeighbourFiles, RunLayout
from dupq.runs.reader import read_metrics
from dupq.settings.config import Settings
from dupq.settings.text import TextSettings
from dupq.shards import Shard, partitions, pinned, question_shards
from dupq.stages.earlier import Earlier, earlier_texts, texts_made_as, texts_then
from dupq.stages.encode import check_room_to_encode, encode_texts
from dupq.stages.inputs import Input, copy_inputs, encoder_content, input_files
from dupq.stages.report import write_report
from dupq.tables import CONTENT_HASHES, CONTENTS
from dupq.text.keys import Sites
from dupq.text.steps import TextTables, make_texts

_log = logging.getLogger(__name__)


def dedup(job: DedupJob, checked: Settings | None = None) -> writer.Run:
    """Find the duplicates of an archive; returns the finished run.

    `checked` is what `job.check()` gave, if it was called before. The same job over the same data gives the same run,
    and continues where an earlier attempt stopped. Raises DupqError if an input is missing or wrong.
    """
    # once: what latest.json names, of the encoder or of the runs, may be another one a moment later
    job = dataclasses.replace(job, encoder=encoder_at(job.encoder), previous=writer.previous_run(job.previous))
    settings, fingerprint = checked or job.check(), read_description(job.encoder)["fingerprint"]
    found, sites = question_shards(job.questions, job.skipped)
    shards = pinned(found)
    inputs = _copied_inputs(job, settings.calibration.prior)
    teacher = None if job.teacher is None else teacher_at(job.teacher, "--teacher ")
    verdicts, contradicted = last_verdicts(job.judged_in(job.previous))
    made_from = _made_from(job, shards, inputs, fingerprint)
    made_from |= {"teacher": teacher.fingerprint} if teacher else {}
    made_from |= {"judged": verdicts} if verdicts else {}
    job, run = _opened(job, made_from, settings)
    if run.finished:
        _log.info(f"run {run.run_id} is finished already")
        _end_again(run, job, settings)
        return run
    gpus = gpus_for(job.gpus)
    if not run.has_record("encode"):
        made_as = RunLayout(run.uri).encoding.made_as
        check_room_to_encode(settings.encode, len(shards), made_as, gpus)
    with run.held(), until_the_end():
        _make(run, job, settings, (shards, sites), inputs, fingerprint, (verdicts, contradicted), teacher, gpus)
    return run


def _end_again(run: writer.Run, job: DedupJob, settings: Settings) -> None:
    """What a finished run lacks of its end, as its job was killed there; where there is nothing, no lease is taken."""
    if not storage.exists(run.path("report.html")):
        with run.held():
            write_report(run.uri)
    check_gates(job.gates, read_metrics(run.uri), run.uri, has_succeeded=True)
    if run.is_to_be_latest:
        with run.held():
            run.point_latest()
    if not settings.run.keep_work and tidying.is_untidy(run.uri):
        with contextlib.suppress(LeaseError), run.held():  # who has it is at the end of the same run, and tidies too
            tidying.tidy_at_end(run.uri)


def _opened(job: DedupJob, made_from: dict[str, object], settings: Settings) -> tuple[DedupJob, writer.Run]:
    """The run of the job. If the run that it shall build on was this job's own attempt, that one, as it was begun.

    So a job that is started again after its run became the latest one, which it names as the earlier run, makes no
    other run.
    """

    def run_of(job: DedupJob) -> writer.Run:
        earlier = storage.name(job.previous) if job.previous else None  # ids and changes are made from it
        stages = versions.DEDUP | (versions.TEACHER if job.teacher else {})
        return writer.open_run(job.output, _inputs(job), made_from | {"previous": earlier}, settings, stages)

    if job.previous is not None:
        before = dataclasses.replace(job, previous=writer.built_on(job.previous))
        own = run_of(before)
        if own.uri == job.previous:
            return before, own
    return job, run_of(job)


def _make(
    run: writer.Run,
    job: DedupJob,
    settings: Settings,
    archive: tuple[list[Shard], Sites],
    inputs: dict[str, list[Input]],
    fingerprint: str,
    verdicts: tuple[list[Verdict], int],
    teacher: Teacher | None,
    gpus: Gpus,
) -> None:
    """All stages of the run; `fingerprint` is the encoder's when the run was opened, and so are the verdicts."""
    (shards, sites), since, (told, contradicted) = archive, job.previous, verdicts
    copies = run.path("work", "inputs")
    copied = {name: storage.join(copies, name) for name in inputs}
    encoder, names = copied["encoder"], tuple(sites.names)
    links = None if settings.clusters.known_links == "ignore" else copied.get("links")
    files = RunLayout(run.uri, encoder)
    judged = judged_keys(told, sites, VERDICTS_FILE)

    run.stage("inputs", lambda: _inputs_of(run, [file for of in inputs.values() for file in of], copies, told))
    if read_description(encoder)["fingerprint"] != fingerprint or job.settings(encoder) != settings:
        raise DupqError(f"{job.encoder}: {storage.CHANGED}")
    measure, k = read_measure(encoder), settings.neighbours.k
    calibration = settings.calibration.changed(prior=copied.get("prior", ""))
    before = None if since is None else RunLayout(since)
    earlier = functools.cache(lambda: earlier_texts(before, texts_made_as(settings.text)))
    questions = Shards(tuple(shards), names, terms_stage.COLUMNS, terms_stage.AT_ONCE)
    told_of, language = (files, questions, settings.text, len(job.skipped), earlier), settings.text.language
    made = make_tables(run, "texts", lambda steps: _texts(steps, *told_of))
    rows, texts = run.records[-1]["rows_out"], made.texts
    check_rows(job.gates, rows, since, run.uri)
    parts, by = partitions(rows), settings.near_duplicates
    terms = make_tables(run, "terms", lambda steps: make_terms(steps, texts, questions, language, parts))
    bundles, apart = bundles_of(made), judged.pairs(DIFFERENT)
    signed = make_tables(
        run, "signatures", lambda steps: make_signatures(steps, bundles, by, sites, parts), folder="near_duplicates"
    )
    near = make_tables(
        run,
        "near_duplicates",
        lambda steps: find_near_duplicates(steps, bundles, signed, terms.rarities, by, language, apart),
        is_last=True,
    )
    fitness = make_tables(run, "fitness", lambda steps: check_fitness(steps, texts, encoder, calibration))
    encoded = run.stage("encode", lambda: encode_texts(files.encoding, sites, settings.encode, gpus, before, earlier()))
    request = SearchRequest(sites.names, settings.neighbours, measure, parts, gpus)
    near_by = files.neighbours
    run.stage("neighbours", lambda: _report(run, "neighbours", lambda steps: _search(steps, shards, request, since)))
    represented = Whole(near.representatives)
    known = Known(Whole(Read(links_table, (links, sites.names))), represented, read_split(encoder, sites))
    asked = Asked(sites.names, measure, k, judged, calibration)
    lists = lists_made(near_by)
    keys = dataclasses.replace(lists, columns=("key",))
    sampled, model = make_tables(
        run,
        "calibrate",
        lambda steps: calibrate(steps, lists, keys, terms, known, fitness, asked),
        folder="calibration",
    )
    floor = math.inf if model["floor"] is None else model["floor"]
    run.stage(
        "beyond_lists",
        lambda: _report(run, "neighbours", lambda steps: find_beyond_lists(steps, lists, request, floor)),
        dropped=near_by.tiles,
    )
    directed, scale = directed_in(near_by.directed, parts), scale_of(model, k)
    scored, around = make_tables(run, "pairs", lambda steps: score_pairs(steps, directed, terms, scale))
    if teacher is not None:
        reading = Reading(teacher, settings.text.code, sites.names)
        shown, said = dataclasses.replace(questions, columns=READ), Table(files.contents, CONTENTS, len(shards))
        given = (scored, sampled), shown, said.only(*CONTENT_HASHES.names), reading, gpus, calibration.prior, before
        run.stage("teacher", lambda: _report(run, "teacher", lambda steps: ask_teacher(steps, *given)))
        scored = dataclasses.replace(scored, folder=run.path("work", "teacher", "scored"))
    used = links if settings.clusters.known_links == "use" else None
    candidates = Candidates(scored, around, terms, Table(run.path("embeddings"), None, len(shards)))

    def partitioned(steps: Run) -> tuple[Thresholds, Table, Held]:
        thresholds = choose_threshold(steps, scored, settings.calibration.precision, settings.clusters.threshold)
        held, cut = hold(steps, texts, used, represented, sites, judged), thresholds["chosen"]["threshold"]
        return thresholds, partition_pairs(steps, candidates, held, sites, Cut(cut, measure, scale)), held

    thresholds, labels, held = make_tables(run, "partition", partitioned)
    share = scale.model.linked_share if model["development_links"] else 0.0  # else nothing tells it
    work = Work(sites.names, judged, settings.clusters.worklist, rows, k, language, share)
    previous = storage.join(since, "clusters") if since else None
    decided = Decided(labels, scored, held.joined, represented, near.verified, links, previous)
    titled = dataclasses.replace(questions, columns=("question_id", "title", "tags"))

    def clustered(steps: Run) -> tuple[Clustered, Table]:
        ids, threshold = dataclasses.replace(questions, columns=CRITERIA), thresholds["chosen"]["threshold"]
        tables = make_clusters(steps, decided, texts, ids, sites, threshold)
        return tables, make_worklist(steps, tables.pairs, tables.members, titled, terms.rarities, links, work)

    tables, worklist = make_tables(run, "clusters", clustered)

    def measured(steps: Run) -> None:
        facts = Facts(
            sites=sites.names,
            thresholds=thresholds,
            calibration=model,
            representatives=encoded["rows_out"],
            judged=judged if told else None,
            contradictions=(contradicted, held.joined.counts(0)["verdicts that others contradict"]),
            verdicts=copied.get("verdicts"),
            truth=copied.get("truth"),
            previous=since,
        )
        dated = dataclasses.replace(questions, columns=SAID_COLUMNS)
        found = measure_links(steps, known, texts, dated, tables, facts) if links else None
        measure_run(steps, tables, worklist, found, links is not None, facts)

    run.stage("evaluate", lambda: _report(run, "evaluate", measured), dropped=run.path("work", "evaluate"))
    sheet = tables.pairs, titled, sites, settings.calibration.review, run.run_id
    run.stage("review", lambda: _report(run, "review", lambda steps: draw_review(steps, *sheet)))
    run.describe()
    write_report(run.uri)
    check_gates(job.gates, read_metrics(run.uri), run.uri)
    run.succeed()
    if not settings.run.keep_work:
        tidying.tidy_at_end(run.uri)
    progress.end(run.uri, "finished")


def _inputs_of(run: writer.Run, inputs: list[Input], folder: str, told: list[Verdict]) -> Report:
    if told:
        storage.write_bytes(run.path(VERDICTS_FILE), format_verdicts(told).encode())
    return copy_inputs(inputs, folder)


def _search(steps: Run, shards: list[Shard], request: SearchRequest, since: str | None) -> None:
    if since is None:
        find_neighbours(steps, shards, request)
    else:
        find_neighbours_since(steps, shards, request, NeighbourFiles(since))


def _report(run: writer.Run, folder: str, make: Callable[[Run], object]) -> Report:
    """What the steps of a stage counted."""
    steps = Run(run.uri, folder)
    make(steps)
    return steps.report


def _texts(
    steps: Run,
    files: RunLayout,
    questions: Shards,
    settings: TextSettings,
    skipped: int,
    earlier: Callable[[], Earlier | None],
) -> TextTables:
    then = None
    if not steps.is_done:
        storage.write_json(files.texts_made_as, {**texts_made_as(settings), "sites": questions.sites})
        if skipped:
            steps.report.caps["shards of questions left out by --skip-shard"] = skipped
        then = earlier()
    return make_texts(steps, questions, Read(texts_then, (then, questions), questions.parts), settings)


def _inputs(job: DedupJob) -> dict[str, str | None]:
    named = {"questions": job.questions, "links": job.links, "encoder": job.encoder, "truth": job.truth}
    named |= {"previous": job.previous, "verdicts": job.verdicts}
    inputs = {name: storage.absolute(uri) if uri else None for name, uri in named.items()}
    inputs |= {"teacher": job.teacher} if job.teacher else {}
    inputs["language"] = read_description(job.encoder)["metrics"].get("language")  # and how training knew it
    return inputs | ({"skipped_shards": ", ".join(job.skipped)} if job.skipped else {})


def _copied_inputs(job: DedupJob, prior: str) -> dict[str, list[Input]]:
    """What is read more than once, and so from copies."""
    given = {"links": job.links, "truth": job.truth, "verdicts": job.verdicts, "prior": prior}
    encoder = {"encoder": input_files(job.encoder, "encoder", description.FILES)}
    return encoder | {name: input_files(uri, name) for name, uri in given.items() if uri}


def _made_from(
    job: DedupJob, shards: list[Shard], inputs: dict[str, list[Input]], fingerprint: str
) -> dict[str, object]:
    """What tells this run's inputs from others', but for the earlier run."""
    copied = {name: [[file.path, file.checksum] for file in files] for name, files in inputs.items()}
    skipped = {"skipped_shards": sorted(job.skipped)} if job.skipped else {}
    return {
        **copied,
        **skipped,
        "encoder": encoder_content(fingerprint, inputs["encoder"]),
        "questions": writer.content_of(job.questions, shards),
    }
