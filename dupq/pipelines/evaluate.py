"""The evaluation job: a whole archive ranked for its known duplicates, by an encoder and by the baselines."""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from dupq import storage
from dupq.encoders.description import FILES, encoder_at, read_description, read_settings
from dupq.errors import DupqError, SettingError
from dupq.evaluation.known_duplicates import measure_known
from dupq.evaluation.labels import Labels, usable
from dupq.evaluation.ranked import Archive
from dupq.evaluation.records import Known
from dupq.evaluation.tables import TABLES, left_out
from dupq.execution.gpus import gpus_for
from dupq.links.pair_files import check_pairs, read_lines
from dupq.links.tables import known_duplicates
from dupq.runs import progress, versions, writer
from dupq.runs.layout import Encoding, RankingFiles
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.shards import check_links, check_questions, pinned, question_shards
from dupq.stages.encode import check_encoder, check_room_to_encode, encode_texts
from dupq.stages.evaluation.compared import Ranking
from dupq.stages.evaluation.evaluate import read_seen
from dupq.stages.evaluation.ranking import measure_ranked
from dupq.stages.inputs import copy_inputs, encoder_content, input_files
from dupq.stages.texts import make_distinct_texts
from dupq.text.keys import Sites

FREE_SECTIONS = ("encode", "evaluation")  # with an encoder: it reads the texts as it was trained to
_BASELINES_READ = ("text", "training", "evaluation")  # of training the split


@dataclass(frozen=True)
class EvaluationJob:
    """The arguments of `jobs/evaluate.py`: URIs, and the names of the tables to measure.

    `links` is a table of links, or a file of labelled pairs.
    """

    questions: str
    links: str
    output: str
    encoder: str | None = None
    tables: tuple[str, ...] = tuple(TABLES)
    assignments: tuple[str, ...] = ()
    gpus: int | None = None  # that may encode; None: those that the cluster has

    def check(self) -> Settings:
        """The settings; raises DupqError for what is wrong, before any work."""
        writer.check_output(self.output)
        unknown = [name for name in self.tables if name not in TABLES]
        if unknown or not self.tables:
            raise SettingError(f"--table {', '.join(unknown)}: no such table; there are {', '.join(TABLES)}")
        sites, questions = check_questions(self.questions)
        if not questions:
            raise DupqError(f"{self.questions}: no questions in the tables; nothing to measure")
        if _is_pair_file(self.links):
            check_pairs(self.links, sites)
        else:
            check_links(self.links)
        if self.encoder is None:
            return config.assign_free(config.load(), self.assignments, _BASELINES_READ, "not read without an encoder")
        settings = self.settings(self.encoder)
        check_encoder(self.encoder, sites)
        return settings

    def settings(self, encoder: str) -> Settings:
        """The settings of a run with the encoder at `encoder`."""
        return config.assign_to_trained(read_settings(encoder), self.assignments, FREE_SECTIONS)


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
    labels = _read_labels(job.links, sites, archive.keys) if _is_pair_file(job.links) else None
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


def _is_pair_file(links: str) -> bool:
    return storage.kind(links) == "file" and not links.endswith(".parquet")


def _read_labels(uri: str, sites: Sites, keys: np.ndarray) -> Labels:
    return usable(*read_lines(storage.read_bytes(uri), sites, uri), keys)
