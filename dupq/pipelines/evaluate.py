"""The evaluation job: a whole archive ranked for its known duplicates, by an encoder and by the baselines."""

import dataclasses
import functools

import numpy as np

from dupq import storage
from dupq.encoders.description import FILES, encoder_at, read_description
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import measure_known
from dupq.evaluation.labels import Labels, usable
from dupq.evaluation.ranked import Archive
from dupq.evaluation.records import Known
from dupq.evaluation.tables import TABLES, left_out
from dupq.execution.gpus import gpus_for
from dupq.links.pair_files import read_lines
from dupq.links.tables import known_duplicates
from dupq.pipelines.arguments import EvaluationJob, is_pair_file
from dupq.runs import progress, versions, writer
from dupq.runs.layout import Encoding, RankingFiles
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.shards import pinned, question_shards
from dupq.stages.encode import check_room_to_encode, encode_texts
from dupq.stages.evaluation.compared import Ranking
from dupq.stages.evaluation.evaluate import read_seen
from dupq.stages.evaluation.ranking import measure_ranked
from dupq.stages.inputs import copy_inputs, encoder_content, input_files
from dupq.stages.texts import language_of_shards, make_distinct_texts
from dupq.text.keys import Sites


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
    run = writer.open_run(storage.join(output, "work"), inputs, made_from, settings, versions.EVALUATION)
    gpus = gpus_for(job.gpus if job.encoder is not None else 0)
    if job.encoder is not None and not run.has_record("encode"):
        check_room_to_encode(settings.encode, len(shards), run.path("encoded_as.json"), gpus)
    with run.held():
        texts, embeddings, encoder = run.path("texts"), run.path("embeddings"), None
        if copied:
            encoder = run.path("inputs", "encoder")
            run.stage("inputs", lambda: copy_inputs(copied, run.path("inputs")))
            if _fingerprint(job, encoder, settings) != fingerprint:
                raise DupqError(f"{job.encoder}: {storage.CHANGED}")
        run.stage("texts", lambda: make_distinct_texts(shards, sites, settings.text, texts))
        if encoder is not None:
            job_of = Encoding(texts, "", encoder, None, run.path("encoded_as.json"), embeddings)
            run.stage("encode", lambda: encode_texts(job_of, sites, settings.encode, gpus))
        files = RankingFiles(texts, embeddings, encoder, run.path("ranking"))
        storage.delete_folder(files.folder)  # of other links
        ranking = Ranking(files, sites.names, settings.text.language)
        measure_ranked(
            ranking, functools.partial(_measured, dataclasses.replace(job, encoder=encoder), settings, sites.names)
        )
        metrics = storage.read_json(files.measures)
        storage.write_json(storage.join(output, "metrics.json"), metrics)
        storage.delete_folder(files.folder)
        progress.end(run.uri, "finished")
    return "\n\n".join([*(f"{name}: {TABLES[name](metrics)}" for name in job.tables), left_out(metrics)])


def _fingerprint(job: EvaluationJob, encoder: str | None, settings: Settings) -> str | None:
    """That of `encoder`, the job's or a copy. Raises DupqError if its settings are no longer those of the check."""
    if encoder is None:
        return None
    if job.settings(encoder) != settings:
        raise DupqError(f"{job.encoder}: {storage.CHANGED}")
    return read_description(encoder)["fingerprint"]


def _measured(job: EvaluationJob, settings: Settings, site_names: list[str], archive: Archive) -> Known:
    sites = Sites(site_names)
    labels = _read_labels(job.links, sites, archive.keys) if is_pair_file(job.links) else None
    links = known_duplicates(job.links, sites) if labels is None else labels.duplicates
    others = None if labels is None else labels.others
    seen_before = read_seen(job.encoder, sites)
    known = measure_known(archive.rankers, archive.keys, links, seen_before, settings, others, job.tables)
    if known is None:
        raise DupqError(f"{job.links}: no known duplicates have both questions in the archive; nothing to measure")
    measured = known["test_queries"] if "retrieval" in job.tables else known["balanced_pairs"]["pairs"]
    if not measured:
        seen = known["left_out"]["train"] + known["left_out"]["development"]
        raise DupqError(
            f"{job.links}: all {seen} questions with known duplicates were seen when the encoder was trained; nothing "
            "to measure. Give links or pairs that it has not seen"
        )
    return known if labels is None else {**known, "labels": labels.counts}


def _read_labels(uri: str, sites: Sites, keys: np.ndarray) -> Labels:
    return usable(*read_lines(storage.read_bytes(uri), sites, uri), keys)
