"""The arguments of `dupq train`."""

from dataclasses import dataclass

from dupq import storage
from dupq.encoders.description import encoder_at, read_settings
from dupq.errors import DupqError, SettingError
from dupq.links.pair_files import check_pairs
from dupq.runs import writer
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings
from dupq.shards import check_links, check_questions


@dataclass(frozen=True)
class TrainingJob:
    """The arguments of `dupq train`. All are URIs but the preset's name."""

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
        config.load(self.preset, self.assignments)  # before what takes longer: a wrong name
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
        from dupq.encoders.kinds import learns_without_links, presets_without_links
        from dupq.encoders.saved import load

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
    if settings.text.language != "auto":
        settings = config.in_language(settings, settings.text.language)
    _check_negatives(settings.training, has_others)
    if settings.word_vectors.algorithm == "teacher" and not settings.teacher.encoder:
        raise SettingError("setting 'teacher.encoder' is empty; word_vectors.algorithm=teacher needs a saved encoder")
    teachers = tuple(encoder_at(encoder) for encoder in settings.teacher.encoder)
    for teacher in teachers:
        read_settings(teacher)
    settings = settings.changed(teacher=settings.teacher.changed(encoder=teachers))
    vectors = settings.word_vectors.file
    if vectors:
        if storage.kind(vectors) != "file":
            raise DupqError(f"word_vectors.file={vectors}: no such file")
        settings = settings.changed(word_vectors=settings.word_vectors.changed(file=storage.absolute(vectors)))
    from dupq.encoders.kinds import network_settings  # with torch, as the rest of this check

    settings = settings.changed(encoder=network_settings(settings.encoder).found().given())
    _check_teacher_loss(settings)
    return _with_start(settings) if settings.word_vectors.goes_on else settings


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
    import numpy as np

    from dupq.encoders.build import build
    from dupq.text.vocabulary import FIRST_WORD

    if build(encoder, np.zeros((FIRST_WORD, 1), np.float32), seed=0).kind != "cosine":
        raise SettingError(
            f"setting 'teacher.loss' is {loss!r}, but encoder.kind={encoder.kind} compares vectors by their distance "
            "and not by cosine; relation expected"
        )
