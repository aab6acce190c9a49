"""The evaluation job: a whole archive ranked for its known duplicates, by an encoder and by the baselines."""

import dataclasses

from dupq import storage
from dupq.archive import pinned, question_shards
from dupq.encoders.saved import FILES, encoder_at, read_description
from dupq.encoders.steps import check_room_to_encode, encode_texts
from dupq.evaluation.measures import TABLES, left_out
from dupq.evaluation.steps.measure_archive import Archive, measure_archive
from dupq.job.gpus import gpus_for, until_the_end
from dupq.job.inputs import content_of, encoder_content, input_files
from dupq.job.run import Run
from dupq.job.tasks import run_tasks
from dupq.pipelines.arguments import EvaluationJob, check_encoder_copy, is_pair_file
from dupq.runs import progress
from dupq.runs.records import EVALUATION_VERSIONS, Encoding
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
    found, sites = question_shards(job.questions)
    shards = pinned(found)
    if settings.text.language == "auto":  # without an encoder, which has one
        settings = config.in_language(settings, language_of_shards(shards)[0])
    inputs = {"questions": job.questions, "links": job.links, "encoder": job.encoder}
    made_from: dict[str, object] = {"questions": content_of(job.questions, shards)}
    copied, fingerprint = {}, ""
    if job.encoder is not None:
        copied["encoder"] = input_files(job.encoder, "encoder", FILES)
        fingerprint = read_description(job.encoder)["fingerprint"]
        made_from["encoder"] = encoder_content(fingerprint, copied["encoder"])
    output = storage.absolute(job.output)
    run = Run.open(storage.join(output, "work"), inputs, made_from, settings, EVALUATION_VERSIONS, copied)
    gpus, encoder, made_as = gpus_for(job.gpus if copied else 0), run.copy_of("encoder"), run.path("encoded_as.json")
    if encoder is not None and not run.has_record("encode"):
        check_room_to_encode(made_as, gpus)
    with run.held(), until_the_end():
        texts = run.make("texts", make_distinct_texts, shards, sites, settings.text)
        embeddings, place = run.path("embeddings"), storage.join(output, "metrics.json")
        if encoder is not None:
            run.stage("inputs", run.copy_inputs)
            check_encoder_copy(job, encoder, settings, fingerprint)
            encoding = Encoding(texts.folder, "", encoder, None, made_as, embeddings)
            run.stage("encode", lambda: encode_texts(encoding, sites, settings.encode, gpus))
        archive = Archive(texts.folder, embeddings, encoder, sites.names, job.links, is_pair_file(job.links))
        run_tasks("measure", measure_archive, [(archive, settings, job.tables, place)])
        progress.end(run.uri, "finished")
    metrics = storage.read_json(place)
    return "\n\n".join([*(f"{name}: {TABLES[name](metrics)}" for name in job.tables), left_out(metrics)])
