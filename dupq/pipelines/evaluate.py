"""The evaluation job: a whole archive ranked for its known duplicates, by an encoder and by the baselines."""

import dataclasses

from dupq import storage
from dupq.archive import pinned, question_shards
from dupq.encoders.saved import FILES, encoder_at, read_description
from dupq.encoders.steps import check_room_to_encode, encode_texts
from dupq.errors import DupqError
from dupq.evaluation.measures import TABLES, left_out
from dupq.evaluation.steps.measure_archive import Archive, measure_archive
from dupq.job.gpus import gpus_for, until_the_end
from dupq.job.run import make_tables
from dupq.job.run_inputs import copy_inputs, encoder_content, input_files
from dupq.job.tasks import run_tasks
from dupq.pipelines.arguments import EvaluationJob, is_pair_file
from dupq.runs import progress, writer
from dupq.runs.records import Encoding
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.steps import language_of_shards, make_distinct_texts


def evaluate(job: EvaluationJob, checked: Settings | None = None) -> str:
    """Write metrics.json below `job.output`, with what `job.tables` name only; returns these tables as text.

    `checked` is what `job.check()` gave, if it was called before.
    """
    if job.encoder is not None:
        job = dataclasses.replace(job, encoder=encoder_at(job.encoder))
    settings = checked or job.check()
    fingerprint = _fingerprint(job, job.encoder, settings)
    found, sites = question_shards(job.questions)
    shards = pinned(found)
    if settings.text.language == "auto":  # without an encoder, which has one
        settings = config.in_language(settings, language_of_shards(shards)[0])
    output = storage.absolute(job.output)
    inputs = {"questions": job.questions, "links": job.links, "encoder": job.encoder}
    copied = input_files(job.encoder, "encoder", FILES) if job.encoder is not None else []
    made_from = {
        "questions": writer.content_of(job.questions, shards),
        "encoder": None if fingerprint is None else encoder_content(fingerprint, copied),
    }
    run = writer.open_run(storage.join(output, "work"), inputs, made_from, settings, writer.EVALUATION_VERSIONS)
    gpus = gpus_for(job.gpus if job.encoder is not None else 0)
    if job.encoder is not None and not run.has_record("encode"):
        check_room_to_encode(run.path("encoded_as.json"), gpus)
    with run.held(), until_the_end():
        texts, embeddings, encoder = run.path("texts"), run.path("embeddings"), None
        if copied:
            encoder = run.path("inputs", "encoder")
            run.stage("inputs", lambda: copy_inputs(copied, run.path("inputs")))
            if _fingerprint(job, encoder, settings) != fingerprint:
                raise DupqError(f"{job.encoder}: {storage.CHANGED}")
        make_tables(run, "texts", make_distinct_texts, shards, sites, settings.text)
        if encoder is not None:
            job_of = Encoding(texts, "", encoder, None, run.path("encoded_as.json"), embeddings)
            run.stage("encode", lambda: encode_texts(job_of, sites, settings.encode, gpus))
        archive = Archive(texts, embeddings, encoder, sites.names, job.links, is_pair_file(job.links))
        place = storage.join(output, "metrics.json")
        run_tasks("measure", measure_archive, [(archive, settings, job.tables, place)])
        progress.end(run.uri, "finished")
    metrics = storage.read_json(place)
    return "\n\n".join([*(f"{name}: {TABLES[name](metrics)}" for name in job.tables), left_out(metrics)])


def _fingerprint(job: EvaluationJob, encoder: str | None, settings: Settings) -> str | None:
    """That of `encoder`, the job's or a copy. Raises DupqError if its settings are no longer those of the check."""
    if encoder is None:
        return None
    if job.settings(encoder) != settings:
        raise DupqError(f"{job.encoder}: {storage.CHANGED}")
    return read_description(encoder)["fingerprint"]
