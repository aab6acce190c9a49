"""The nightly job, stage after stage: questions in, pairs and clusters of duplicates out.

    questions   ──texts──▶            tokens, once for all stages
    texts       ──signatures──▶       exact copies; band keys of the MinHash signatures of all others
    band keys   ──near_duplicates──▶  verified pairs, representatives
    texts       ──encode──▶           embeddings of the representatives, by a pool of actors
    texts       ──terms──▶            stems and tags of every question, and how rare each is
    embeddings  ──calibrate──▶        the probability of a pair in this archive, from a sample searched in all of it
    embeddings  ──neighbours──▶       the k nearest questions of each, and all pairs above a floor, exactly
    neighbours  ──pairs──▶            their evidence and probability, and the threshold for the wanted precision
    pairs       ──partition──▶        of each component of sure pairs the best partition
    partition   ──clusters──▶         pairs, clusters, cluster_stats, changes since an earlier run
    run         ──evaluate──▶         metrics.json: counts, and quality on known duplicates
    pairs       ──review──▶           review.tsv: a sample of pairs for people to judge
    run         ──report──▶           report.html

Each stage reads files and writes files; the driver holds none of their rows.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from dupq import storage
from dupq.clusters.prior import read_prior
from dupq.encoders.description import read_description, read_measure
from dupq.errors import DupqError, SettingError
from dupq.evaluation.verdict_files import read_verdicts
from dupq.execution.tasks import run_tasks
from dupq.near_duplicates.band_choice import with_bands
from dupq.report import page
from dupq.runs import versions, writer
from dupq.runs.layout import NeighbourFiles, RunLayout
from dupq.runs.records import Metrics
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.shards import link_files, partitions, question_shards
from dupq.stages.calibration.calibrate import calibrate
from dupq.stages.clusters.clusters import make_clusters
from dupq.stages.clusters.pairs import choose_threshold, score_pairs
from dupq.stages.clusters.partition import Cut, partition_pairs
from dupq.stages.encode import encode_texts
from dupq.stages.evaluation.evaluate import evaluate_run
from dupq.stages.evaluation.review import make_review
from dupq.stages.near_duplicates.signatures import make_signatures
from dupq.stages.near_duplicates.verify import find_near_duplicates
from dupq.stages.neighbours.exact import planned
from dupq.stages.neighbours.increment import find_neighbours_since
from dupq.stages.neighbours.search import find_neighbours
from dupq.stages.neighbours.tables import SearchRequest
from dupq.stages.represented_links import write_links
from dupq.stages.terms import make_terms
from dupq.stages.texts import make_texts

FREE_SECTIONS = ("near_duplicates", "encode", "neighbours", "calibration", "clusters", "evaluation")


@dataclass(frozen=True)
class Gates:
    """The gates of a run: if it misses one, it fails and `latest.json` is not moved. None: no such gate."""

    min_recall: float | None = None  # of the known duplicates of the test part in one cluster
    max_cluster: int | None = None  # questions
    max_change: float | None = None  # share of the questions of clusters whose cluster differs from the earlier run's


@dataclass(frozen=True)
class DedupJob:
    """The arguments of `jobs/dedup.py`. Those that are None by default may be missing."""

    questions: str
    encoder: str
    output: str
    links: str | None = None
    truth: str | None = None
    previous: str | None = None  # an earlier run, or the folder of runs
    assignments: tuple[str, ...] = ()
    verdicts: str | None = None  # a filled-in review.tsv
    gates: Gates = Gates()

    def check(self) -> Settings:
        """The settings; raises DupqError for what is wrong, before any work."""
        question_shards(self.questions)
        if self.links is not None:
            link_files(self.links)
        writer.previous_run(self.previous)
        for uri in (self.truth, self.verdicts):
            if uri is not None and not storage.exists(uri):
                raise DupqError(f"{uri}: no such file")
        read_verdicts(self.verdicts, question_shards(self.questions)[1])
        if self.gates.max_change is not None and self.previous is None:
            raise SettingError("--max-change: --previous is needed, the run that is compared with")
        settings = run_settings(read_description(self.encoder), self.assignments)
        read_prior(settings.calibration.prior)
        return settings


def dedup(job: DedupJob) -> writer.Run:
    """Find the duplicates of an archive; returns the finished run.

    The same job over the same data gives the same run, and continues where an earlier attempt stopped. Raises
    DupqError if an input is missing or wrong.
    """
    settings = job.check()
    description = read_description(job.encoder)
    shards, sites = question_shards(job.questions)
    made_from = _made_from(job, description, settings.calibration.prior)
    run = writer.open_run(job.output, _inputs(job), made_from, settings, versions.DEDUP)
    if run.finished:
        print(f"run {run.run_id} is finished already")
        check_gates(job.gates, storage.read_json(run.path("metrics.json")), run.uri)
        return run
    measure, k = read_measure(job.encoder), settings.neighbours.k
    since = writer.previous_run(job.previous)
    known = None if settings.clusters.known_links == "ignore" else job.links
    files = RunLayout(run.uri, tuple(shards), job.encoder, known, job.truth, job.verdicts, since)
    near = files.near

    texts = run.stage("texts", lambda: make_texts(shards, sites, settings.text, near.texts))
    files = dataclasses.replace(files, parts=partitions(texts["rows_out"]))
    run.stage("signatures", lambda: make_signatures(near, sites, settings.near_duplicates, files.parts))
    run.stage("near_duplicates", lambda: find_near_duplicates(near, settings.near_duplicates, files.parts))
    storage.delete_folder(near.exchange)
    run.stage(
        "encode",
        lambda: encode_texts(
            near.texts, job.encoder, sites, near.representatives, settings.encode, run.path("embeddings")
        ),
    )
    run.stage("terms", lambda: make_terms(files.terms, sites, settings.text.language))
    request = SearchRequest(sites.names, settings.neighbours, measure, math.inf, files.parts)
    plan = planned(files.neighbours, shards, request)
    run.stage("calibrate", lambda: calibrate(files.calibration, request, plan, settings.calibration))
    floor = storage.read_json(files.calibration.output)["floor"]
    request = dataclasses.replace(request, threshold=math.inf if floor is None else floor)
    if since is None:
        run.stage("neighbours", lambda: find_neighbours(files.neighbours, shards, request))
    else:
        run.stage("neighbours", lambda: find_neighbours_since(files.neighbours, shards, request, NeighbourFiles(since)))
    storage.delete_folder(files.neighbours.tiles)
    run.stage("pairs", lambda: score_pairs(files.pairs, k))
    threshold = choose_threshold(files.pairs, settings.calibration.precision, settings.clusters.threshold)
    used = files.links if settings.clusters.known_links == "use" else None
    run_tasks("links", write_links, [(files.partition.links, used, near, sites.names)])
    cut = Cut(threshold, settings.clusters, measure, k)
    run.stage("partition", lambda: partition_pairs(files.partition, shards, sites, cut))
    run.stage("clusters", lambda: make_clusters(files.clusters, shards, sites, threshold, files.parts))
    run.stage("evaluate", lambda: evaluate_run(files.evaluation, sites, settings))
    storage.delete_folder(files.evaluation.work)
    run.stage("review", lambda: make_review(files.review, shards, sites, settings.calibration.review, run.run_id))
    run.describe()
    page.write(run.uri)
    check_gates(job.gates, storage.read_json(run.path("metrics.json")), run.uri)
    run.succeed()
    return run


def check_gates(gates: Gates, metrics: Metrics, run: str) -> None:
    """Raise DupqError for the first gate that a run does not pass."""
    recall = (metrics["links"] or {}).get("in_one_cluster")
    change = (metrics["drift"] or {}).get("questions_of_clusters_changed")
    failed = None
    if gates.min_recall is not None and (recall is None or recall < gates.min_recall):
        said = "not measured: there are no known duplicates to test on" if recall is None else f"{recall:.3f}"
        failed = f"--min-recall {gates.min_recall}: the recall of known duplicates in one cluster is {said}"
    elif gates.max_cluster is not None and metrics["largest_cluster"] > gates.max_cluster:
        failed = f"--max-cluster {gates.max_cluster}: the largest cluster has {metrics['largest_cluster']:,} questions"
    elif gates.max_change is not None and change is not None and change > gates.max_change:
        failed = f"--max-change {gates.max_change}: {change:.3f} of the questions of clusters have another cluster"
    if failed:
        raise DupqError(f"{failed}; the run is complete but not marked as succeeded, see {run}/report.html")


def run_settings(description: dict[str, Any], assignments: tuple[str, ...]) -> Settings:
    """The settings that the encoder was trained with, changed where a run is free to, and bands and rows chosen."""
    trained = config.from_dict(description["settings"])
    free = {section: getattr(Settings(), section) for section in FREE_SECTIONS}
    settings = config.assign_free(trained.changed(**free), assignments, FREE_SECTIONS)
    return settings.changed(near_duplicates=with_bands(settings.near_duplicates))


def _inputs(job: DedupJob) -> dict[str, str | None]:
    named = {"questions": job.questions, "links": job.links, "encoder": job.encoder, "truth": job.truth}
    named |= {"previous": writer.previous_run(job.previous), "verdicts": job.verdicts}
    return {name: storage.absolute(uri) if uri else None for name, uri in named.items()}


def _made_from(job: DedupJob, description: dict[str, Any], prior: str) -> dict[str, object]:
    return {
        "questions": writer.content_of(job.questions),
        "links": writer.content_of(job.links) if job.links else None,
        "encoder": description["fingerprint"],
        "truth": storage.checksum(job.truth) if job.truth else None,
        "verdicts": storage.checksum(job.verdicts) if job.verdicts else None,
        "prior": storage.checksum(prior) if prior else None,
        # ids and changes are made from it
        "previous": storage.name(str(writer.previous_run(job.previous))) if job.previous else None,
    }
