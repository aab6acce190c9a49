"""The training job, stage after stage: questions and links in, an encoder out.

questions     ──texts──▶      tokens; answers too, if they were ingested
pair files    ──pairs──▶      labelled pairs, if there are any
texts, links  ──prepare──▶    split by sets of known duplicates, words and their vectors, token ids
questions     ──teach──▶      teachers' embeddings of some, if there are any
pairs         ──fit──▶        the network, by Ray Train
network       ──save──▶       the encoder, with measures on its own archive; published once it is whole
"""

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dupq import storage
from dupq.encoders.build import build
from dupq.encoders.description import FILES, encoder_at, read_description, read_settings
from dupq.encoders.kinds import learns_without_links, network_settings, presets_without_links
from dupq.encoders.packed import base_fingerprint
from dupq.encoders.saved import load
from dupq.errors import DupqError, SettingError
from dupq.execution.gpus import gpus_for
from dupq.execution.tasks import Report
from dupq.links.pair_files import check_pairs
from dupq.links.split import FEWEST_SETS
from dupq.runs import progress, versions, writer
from dupq.runs.training_layout import TrainingFiles
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings
from dupq.shards import answer_shards, check_links, check_questions, pinned, question_shards
from dupq.stages.inputs import copy_inputs, input_files
from dupq.stages.texts import make_answer_texts, make_distinct_texts
from dupq.stages.training.fit import check_room_to_fit, fit
from dupq.stages.training.known_pairs import gather_pairs
from dupq.stages.training.prepare import PAIRS_TO_TRAIN_ON, SETS, prepare
from dupq.stages.training.save_encoder import publish, save_encoder
from dupq.stages.training.teacher import fingerprint, teach
from dupq.text.vocabulary import FIRST_WORD

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingJob:
    """The arguments of `jobs/train.py`. All are URIs but the preset's name."""

    questions: str
    links: str | None
    output: str
    preset: str = config.DEFAULT_PRESET
    assignments: tuple[str, ...] = ()
    workers: int = 1
    pairs: tuple[str, ...] = ()
    gpus: int | None = None  # that may be taken; None: those that the cluster has

    def check(self) -> Settings:
        """The settings; raises DupqError for what is wrong, before any work."""
        writer.check_output(self.output)
        sites, questions = check_questions(self.questions)
        if not questions:
            raise DupqError(f"{self.questions}: no questions in the tables; nothing to learn from")
        links = 0 if self.links is None else check_links(self.links)
        has_others = [check_pairs(uri, sites) for uri in self.pairs]
        if self.workers < 1:
            raise SettingError(f"--workers {self.workers}: at least 1 expected")
        if self.gpus and self.gpus < self.workers:
            raise SettingError(
                f"--gpus {self.gpus}: each of {self.workers} workers takes one, or none does (--gpus none)"
            )
        settings = training_settings(self.preset, self.assignments, any(has_others))
        if not links and not self.pairs and not learns_without_links(settings):
            missing = "neither --links nor --pairs" if self.links is None else f"{self.links}: no links in the tables"
            raise SettingError(
                f"{missing}: preset {self.preset} learns from known duplicates only; give some, or take one of the "
                f"presets {', '.join(presets_without_links())}"
            )
        for teacher in settings.teacher.encoder:
            load(teacher)
        return settings


def training_settings(preset: str, assignments: tuple[str, ...], has_others: bool = False) -> Settings:
    """A preset, changed by assignments, with absolute paths; `has_others`: there are pairs labelled 0.

    Raises DupqError for what is wrong, also with the files that the settings name.
    """
    settings = config.load(preset, assignments)
    settings = settings.changed(encoder=network_settings(settings.encoder).found().given())
    _check_negatives(settings.training, has_others)
    if settings.word_vectors.algorithm == "teacher" and not settings.teacher.encoder:
        raise SettingError("setting 'teacher.encoder' is empty; word_vectors.algorithm=teacher needs a saved encoder")
    teachers = tuple(encoder_at(encoder) for encoder in settings.teacher.encoder)
    for teacher in teachers:
        read_settings(teacher)
    settings = settings.changed(teacher=settings.teacher.changed(encoder=teachers))
    _check_teacher_loss(settings)
    if settings.word_vectors.goes_on:
        settings = _with_start(settings)
    vectors = settings.word_vectors.file
    if not vectors:
        return settings
    if storage.kind(vectors) != "file":
        raise DupqError(f"word_vectors.file={vectors}: no such file")
    there = settings.word_vectors.changed(file=storage.absolute(vectors))
    return settings.changed(word_vectors=there)


def _with_start(settings: Settings) -> Settings:
    """With the place of the encoder that training goes on from; raises SettingError if it cannot."""
    from dupq.training.start import check_start

    vectors = settings.word_vectors
    if vectors.start != "base":
        settings = settings.changed(word_vectors=vectors.changed(start=encoder_at(vectors.start)))
    check_start(settings)
    return settings


def _check_negatives(settings: TrainingSettings, has_labelled: bool) -> None:
    has_others = settings.mined_negatives > 0 or settings.loss == "softmax" or has_labelled
    if not settings.negatives and not has_others:
        raise SettingError(
            "setting 'training.negatives' is 0; at least 1 expected, unless there are mined ones, pairs labelled 0 "
            "in a file of --pairs, or the loss is softmax"
        )


def _check_teacher_loss(settings: Settings) -> None:
    loss, encoder = settings.teacher.loss, settings.encoder
    if not settings.teacher.encoder or loss == "relation":
        return
    if build(encoder, np.zeros((FIRST_WORD, 1), np.float32), seed=0).kind != "cosine":
        raise SettingError(
            f"setting 'teacher.loss' is {loss!r}, but encoder.kind={encoder.kind} compares vectors by their distance "
            "and not by cosine; relation expected"
        )


def _tell_what_is_left_out(prepared: dict[str, int], settings: Settings) -> None:
    """Say so if there are no known duplicates to train on; `prepared` are the counts of that stage."""
    has_phases = settings.title_body.epochs > 0 or bool(settings.teacher.encoder)
    if has_phases and not prepared[PAIRS_TO_TRAIN_ON]:
        _log.info(
            f"{prepared[SETS]} sets of known duplicates, and {FEWEST_SETS} at least are needed to learn from them: "
            "that phase is left out, and nothing tells how many duplicates the encoder finds"
        )


def _encoders_read(settings: Settings) -> list[str]:
    """The saved encoders that training reads."""
    vectors = settings.word_vectors
    starts = [vectors.start] if vectors.goes_on and vectors.start != "base" else []
    return [*starts, *settings.teacher.encoder]


def _start_fingerprint(settings: Settings) -> str | None:
    """Names what the encoder that training goes on from holds, if there is one."""
    vectors = settings.word_vectors
    if not vectors.goes_on:
        return None
    return base_fingerprint() if vectors.start == "base" else read_description(vectors.start)["fingerprint"]


def _unchanged(settings: Settings) -> Callable[[Report], Report]:
    """Passes a stage's report on; raises DupqError if a file of word vectors or an encoder that is read has changed."""
    uris = [settings.word_vectors.file] if settings.word_vectors.file else []
    for encoder in _encoders_read(settings):
        uris += [storage.join(encoder_at(encoder), name) for name in FILES]
    versions_then = {uri: storage.version(uri) for uri in uris}

    def check(report: Report) -> Report:
        for uri, version in versions_then.items():
            if storage.version(uri) != version:
                raise DupqError(f"{uri}: {storage.CHANGED}")
        return report

    return check


def train(job: TrainingJob, checked: Settings | None = None) -> writer.Run:
    """Train an encoder and save it at `job.output`; returns the run, whose records tell what was done.

    `checked` is what `job.check()` gave, if it was called before.

    The same job over the same data goes on where an earlier attempt stopped. Raises DupqError if an input is
    missing or wrong, and ClusterError if the workers have no room.
    """
    settings = checked or job.check()
    found, sites = question_shards(job.questions)
    shards = pinned(found)
    output = storage.absolute(job.output)
    vectors = settings.word_vectors.file
    # answers are read for word vectors only, so not where there are vectors already
    ignores_answers = vectors or settings.word_vectors.answers == "ignored"
    answers = [] if ignores_answers else pinned(answer_shards(job.questions, sites))
    links = input_files(job.links, "links") if job.links is not None else None
    pairs = [input_files(uri, f"pairs-{number}")[0] for number, uri in enumerate(job.pairs)]
    unchanged = _unchanged(settings)
    inputs = {
        "questions": storage.absolute(job.questions),
        "links": storage.absolute(job.links) if job.links is not None else None,
        "pairs": [storage.absolute(uri) for uri in job.pairs],
    }
    made_from = {
        "questions": writer.content_of(job.questions, shards),
        "links": [[file.path, file.checksum] for file in links] if links is not None else None,
        "pairs": [file.checksum for file in pairs],
        "answers": [[shard.site, storage.checksum(shard.uri)] for shard in answers],
        "word_vectors": storage.checksum(vectors) if vectors else None,
        "start": _start_fingerprint(settings),
        "teachers": [fingerprint(encoder) for encoder in settings.teacher.encoder],
    }
    run = writer.open_run(storage.join(output, "work"), inputs, made_from, settings, versions.TRAINING)
    gpus = gpus_for(job.gpus)
    if not run.has_record("fit"):
        check_room_to_fit(job.workers, gpus)
    with run.held():
        copied = None if links is None else run.path("inputs", "links")
        files = TrainingFiles(texts=run.path("texts"), links=copied, work=run.uri)
        run.stage("inputs", lambda: copy_inputs([*(links or []), *pairs], run.path("inputs")))
        run.stage("texts", lambda: make_distinct_texts(shards, sites, settings.text, files.texts))
        if answers:
            files = dataclasses.replace(files, answers=run.path("answer_texts"))
            run.stage("answer_texts", lambda: make_answer_texts(answers, sites, settings.text, str(files.answers)))
        if job.pairs:
            files = dataclasses.replace(files, pairs=run.path("pairs.parquet"))
            pair_files = tuple(run.path("inputs", file.path) for file in pairs)
            run.stage("pairs", lambda: gather_pairs(pair_files, files, sites))
        prepared = run.stage("prepare", lambda: unchanged(prepare(files, sites, settings)))
        _tell_what_is_left_out(prepared["counts"], settings)
        if settings.teacher.encoder:
            run.stage("teach", lambda: unchanged(teach(files, settings, gpus)))
        run.stage("fit", lambda: fit(files, sites, settings, job.workers, gpus))
        run.stage("save", lambda: save_encoder(files, sites, settings, run.run_id))
        publish(files, output)
        run.describe()
        run.mark()
        progress.end(run.uri, "finished")
    return run
