"""The evaluation job: a whole archive ranked for its known duplicates, by an encoder and by the baselines."""

from dataclasses import dataclass
from typing import Any

from dupq import config, runs, storage
from dupq.encoders.description import read_description
from dupq.errors import DupqError
from dupq.evaluation.tables import TABLES
from dupq.stages.encode import encode_texts
from dupq.stages.evaluate import measure_known, read_archive
from dupq.stages.links import known_duplicates
from dupq.stages.shards import link_files, question_shards
from dupq.stages.tasks import Counts, run_tasks
from dupq.stages.texts import make_texts
from dupq.text.keys import Sites


@dataclass(frozen=True)
class EvaluationJob:
    """What `jobs/evaluate.py` was asked for; URIs, and the names of tables to show."""

    questions: str
    links: str
    output: str
    encoder: str | None = None
    tables: tuple[str, ...] = tuple(TABLES)
    assignments: tuple[str, ...] = ()

    def check(self) -> config.Settings:
        """The settings; raises DupqError for what is wrong, before any work."""
        question_shards(self.questions)
        link_files(self.links)
        if self.encoder is None:
            return config.load(assignments=list(self.assignments))
        trained = config.from_dict(read_description(self.encoder)["settings"])
        return config.assign(trained, self.assignments)


def evaluate(job: EvaluationJob) -> str:
    """Write metrics.json below `job.output`; returns the tables that were asked for, as text."""
    settings = job.check()
    shards, sites = question_shards(job.questions)
    output = storage.absolute(job.output)
    inputs = {"questions": job.questions, "links": job.links, "encoder": job.encoder}
    made_from = {
        "questions": runs.content_of(job.questions),
        "encoder": read_description(job.encoder)["fingerprint"] if job.encoder else None,
    }
    run = runs.open_run(storage.join(output, "work"), inputs, made_from, settings)
    texts, embeddings = run.path("texts"), run.path("embeddings")
    run.stage("texts", lambda: make_texts(shards, sites, settings.text, texts))
    encoder = job.encoder
    if encoder is not None:
        run.stage("encode", lambda: encode_texts(texts, encoder, sites, None, settings.encode, embeddings))
    result = storage.join(output, "metrics.json")
    run_tasks("measure", _measure, [(job, settings, sites.names, (texts, embeddings), result)])
    metrics = storage.read_json(result)
    return "\n\n".join(f"{name}: {TABLES[name](metrics)}" for name in job.tables)


def _measure(
    job: EvaluationJob,
    settings: config.Settings,
    site_names: list[str],
    folders: tuple[str, str],
    output: str,
) -> Counts:
    sites = Sites(site_names)
    archive = read_archive(*folders, job.encoder, sites)
    known: dict[str, Any] | None = measure_known(
        archive, known_duplicates(job.links, sites), job.encoder, sites, settings
    )
    if known is None:
        raise DupqError(f"{job.links}: no duplicate link has both questions in the archive; nothing to measure")
    storage.write_json(output, known)
    return {"rows_in": len(archive.keys), "rows_out": known["test_queries"]}
