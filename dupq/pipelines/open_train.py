"""What a training is of: its inputs as they are when it is opened, the language of its archive, and its identity."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dupq import storage
from dupq.archive import Shard, answer_shards, pinned, question_shards
from dupq.encoders.description import FILES, encoder_at, read_description, read_settings
from dupq.encoders.saved import base_fingerprint
from dupq.errors import DupqError
from dupq.job.run_inputs import Input, copy_inputs, input_files
from dupq.pipelines.arguments import TrainingJob
from dupq.runs import writer
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.keys import Sites
from dupq.text.steps import language_of_shards
from dupq.training.steps.teach import fingerprint

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Opened:
    """A training, and what it reads."""

    run: writer.Run
    settings: Settings  # with the language of the archive
    language: str  # and how it is known
    shards: list[Shard]
    answers: list[Shard]
    sites: Sites
    links: list[Input] | None
    pairs: list[Input]

    def copy(self) -> None:
        """Copy links and pair files into the run. Raises DupqError if one has changed since the run was opened."""
        self.run.stage("inputs", lambda: copy_inputs([*(self.links or []), *self.pairs], self.run.path("inputs")))

    @property
    def copied_links(self) -> str | None:
        """The copy of the links."""
        return None if self.links is None else self.run.path("inputs", "links")

    @property
    def copied_pairs(self) -> tuple[str, ...]:
        """The copies of the pair files."""
        return tuple(self.run.path("inputs", file.path) for file in self.pairs)


def open_train(job: TrainingJob, checked: Settings | None) -> Opened:
    """Open the run of a training. Raises DupqError if an input is missing or wrong."""
    settings = checked or job.check()
    found, sites = question_shards(job.questions)
    shards, vectors = pinned(found), settings.word_vectors.file
    # answers are read for word vectors only, so not where there are vectors already
    answers = [] if vectors else pinned(answer_shards(job.questions, sites))
    links = None if job.links is None else input_files(job.links, "links")
    pairs = [input_files(uri, f"pairs-{number}")[0] for number, uri in enumerate(job.pairs)]
    settings, language = _in_its_language(settings, shards)
    inputs = {
        "language": language,
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
    work = storage.join(storage.absolute(job.output), "work")
    run = writer.open_run(work, inputs, made_from, settings, writer.TRAINING_VERSIONS)
    return Opened(run, settings, language, shards, answers, sites, links, pairs)


def _in_its_language(settings: Settings, shards: list[Shard]) -> tuple[Settings, str]:
    """Return the settings with the language of the archive, and which that is and how it is known, in words."""
    vectors, named = settings.word_vectors, settings.text.language
    if named != "auto":
        return settings, f"{named}, named by text.language"
    if vectors.goes_on and vectors.start != "base":
        started = read_settings(vectors.start).text.language
        return config.in_language(settings, started), f"{started}, as of the encoder that training goes on from"
    language, said = language_of_shards(shards)
    return config.in_language(settings, language), said


def _start_fingerprint(settings: Settings) -> str | None:
    """Return what names the encoder that training goes on from, if there is one."""
    vectors = settings.word_vectors
    if not vectors.goes_on:
        return None
    return base_fingerprint() if vectors.start == "base" else read_description(vectors.start)["fingerprint"]


def unchanged(settings: Settings) -> Callable[[_Made], _Made]:
    """Return a function that returns what a stage made, or raises DupqError if what that read has changed since now.

    That is a file of word vectors, or a saved encoder.
    """
    vectors = settings.word_vectors
    uris = [vectors.file] if vectors.file else []
    starts = [vectors.start] if vectors.goes_on and vectors.start != "base" else []
    for encoder in (*starts, *settings.teacher.encoder):
        uris += [storage.join(encoder_at(encoder), name) for name in FILES]
    versions_then = {uri: storage.version(uri) for uri in uris}

    def check(made: _Made) -> _Made:
        for uri, version in versions_then.items():
            if storage.version(uri) != version:
                raise DupqError(f"{uri}: {storage.CHANGED}")
        return made

    return check
