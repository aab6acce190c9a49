"""The nightly job, stage after stage: questions in, pairs and clusters of duplicates out.

    questions   ──texts──▶            tokens, once for all stages
    texts       ──signatures──▶       exact copies; band keys of the MinHash signatures of all others
    band keys   ──near_duplicates──▶  verified pairs, representatives
    texts       ──encode──▶           embeddings of the representatives, by a pool of actors
    embeddings  ──neighbours──▶       the k nearest questions of each, and all pairs over the threshold, exactly
    pairs       ──clusters──▶         pairs, clusters, cluster_stats
    run         ──evaluate──▶         metrics.json: counts, and quality on known duplicates
    run         ──report──▶           report.html

Each stage reads files and writes files; the driver holds none of their rows.
"""

import dataclasses
from dataclasses import dataclass

from dupq import config, runs, storage
from dupq.encoders.decision import Decision
from dupq.encoders.description import read_description, read_measure
from dupq.errors import DupqError, SettingError
from dupq.near_duplicates.optimum import with_bands
from dupq.report import page
from dupq.stages.clusters import ClusterFiles, make_clusters
from dupq.stages.encode import encode_texts
from dupq.stages.evaluate import EvaluationFiles, evaluate_run
from dupq.stages.increment import find_neighbours_since
from dupq.stages.near_duplicates import find_near_duplicates
from dupq.stages.neighbour_tables import Asked, NeighbourFiles
from dupq.stages.neighbours import find_neighbours
from dupq.stages.shards import link_files, partitions, question_shards
from dupq.stages.signatures import NearFiles, make_signatures
from dupq.stages.texts import make_texts

FREE_SECTIONS = ("near_duplicates", "encode", "neighbours", "clusters", "evaluation")


@dataclass(frozen=True)
class DedupJob:
    """What `jobs/dedup.py` was asked for. All are URIs; `links`, `truth` and `previous` may be missing."""

    questions: str
    encoder: str
    output: str
    links: str | None = None
    truth: str | None = None
    previous: str | None = None  # an earlier run, or the folder of runs
    assignments: tuple[str, ...] = ()

    def check(self) -> config.Settings:
        """The settings; raises DupqError for what is wrong, before any work."""
        question_shards(self.questions)
        if self.links is not None:
            link_files(self.links)
        _previous_run(self.previous)
        if self.truth is not None and not storage.exists(self.truth):
            raise DupqError(f"{self.truth}: no such file")
        return run_settings(read_description(self.encoder), self.assignments)


def dedup(job: DedupJob) -> runs.Run:
    """Find the duplicates of an archive; returns the finished run.

    The same job over the same data gives the same run, and goes on where an earlier attempt stopped. Raises
    DupqError if an input is missing or wrong.
    """
    settings = job.check()
    description = read_description(job.encoder)
    shards, sites = question_shards(job.questions)
    run = runs.open_run(job.output, _inputs(job), _made_from(job, description), settings)
    if run.finished:
        print(f"run {run.run_id} is finished already")
        return run
    decision = _decision(description, settings)
    near = _near_files(run)

    texts = run.stage("texts", lambda: make_texts(shards, sites, settings.text, near.texts))
    parts = partitions(texts["rows_out"])
    run.stage("signatures", lambda: make_signatures(near, sites, settings.near_duplicates, parts))
    run.stage("near_duplicates", lambda: find_near_duplicates(near, settings.near_duplicates, parts))
    storage.delete_folder(near.exchange)
    run.stage(
        "encode",
        lambda: encode_texts(
            near.texts, job.encoder, sites, near.representatives, settings.encode, run.path("embeddings")
        ),
    )
    neighbours = NeighbourFiles(run.uri)
    asked = Asked(sites.names, settings.neighbours, read_measure(job.encoder), decision.threshold, parts)
    since = _previous_run(job.previous)
    if since is None:
        run.stage("neighbours", lambda: find_neighbours(neighbours, shards, asked))
    else:
        run.stage("neighbours", lambda: find_neighbours_since(neighbours, shards, asked, NeighbourFiles(since)))
    storage.delete_folder(neighbours.tiles)
    run.stage("clusters", lambda: make_clusters(_cluster_files(run, job), shards, sites, decision, parts))
    run.stage("evaluate", lambda: evaluate_run(_evaluation_files(run, job), sites, settings, decision))
    run.describe()
    page.write(run.uri)
    run.succeed()
    return run


def run_settings(description: dict, assignments: tuple[str, ...]) -> config.Settings:
    """The settings that the encoder was trained with, changed where a run is free to, and bands and rows chosen."""
    for assignment in assignments:
        if assignment.partition(".")[0] not in FREE_SECTIONS:
            raise SettingError(
                f"--set {assignment}: fixed when the encoder was trained; free are {', '.join(FREE_SECTIONS)}"
            )
    trained = config.from_dict(description["settings"])
    free = {section: getattr(config.Settings(), section) for section in FREE_SECTIONS}
    settings = config.assign(dataclasses.replace(trained, **free), assignments)
    return dataclasses.replace(settings, near_duplicates=with_bands(settings.near_duplicates))


def _previous_run(uri: str | None) -> str | None:
    """The run at `uri`, or the latest of the runs there. Raises DupqError if there is none."""
    if uri is None:
        return None
    if storage.exists(storage.join(uri, "latest.json")):
        uri = storage.join(uri, storage.read_json(storage.join(uri, "latest.json"))["run_id"])
    if not storage.exists(storage.join(uri, "_SUCCESS")):
        raise DupqError(f"--previous {uri}: no finished run, and no folder of runs with a latest.json")
    return storage.absolute(uri)


def _decision(description: dict, settings: config.Settings) -> Decision:
    decision = Decision(**description["decision"])
    if settings.clusters.threshold >= 0:
        return dataclasses.replace(decision, threshold=settings.clusters.threshold)
    return decision


def _inputs(job: DedupJob) -> dict[str, str | None]:
    named = {"questions": job.questions, "links": job.links, "encoder": job.encoder, "truth": job.truth}
    return {name: storage.absolute(uri) if uri else None for name, uri in named.items()}


def _made_from(job: DedupJob, description: dict) -> dict:
    return {
        "questions": runs.content_of(job.questions),
        "links": runs.content_of(job.links) if job.links else None,
        "encoder": description["fingerprint"],
        "truth": storage.checksum(job.truth) if job.truth else None,
    }


def _near_files(run: runs.Run) -> NearFiles:
    return NearFiles(
        texts=run.path("work", "texts"),
        exchange=run.path("work", "near_duplicates"),
        signatures=run.path("work", "signatures"),
        verified=run.path("work", "verified"),
        representatives=run.path("work", "representatives.parquet"),
    )


def _cluster_files(run: runs.Run, job: DedupJob) -> ClusterFiles:
    return ClusterFiles(
        verified=run.path("work", "verified"),
        neighbours=NeighbourFiles(run.uri).directed,
        texts=run.path("work", "texts"),
        links=job.links,
        edges=run.path("work", "edges"),
        members=run.path("work", "members.parquet"),
        pairs=run.path("pairs"),
        clusters=run.path("clusters"),
        cluster_stats=run.path("cluster_stats", "part-00000.parquet"),
    )


def _evaluation_files(run: runs.Run, job: DedupJob) -> EvaluationFiles:
    return EvaluationFiles(
        texts=run.path("work", "texts"),
        representatives=run.path("work", "representatives.parquet"),
        embeddings=run.path("embeddings"),
        encoder=job.encoder,
        links=job.links,
        truth=job.truth,
        pairs=run.path("pairs"),
        clusters=run.path("clusters"),
        cluster_stats=run.path("cluster_stats"),
        output=run.path("metrics.json"),
    )
