"""The training job, stage after stage: questions and links in, an encoder out.

questions     ──texts──▶      tokens; answers too, if they were ingested
pair files    ──pairs──▶      labelled pairs, if there are any
texts, links  ──prepare──▶    split by sets of known duplicates, word vectors
questions     ──teach──▶      a teacher's embeddings of some, if there is one
pairs         ──fit──▶        the network, by Ray Train
network       ──save──▶       the encoder, with measures on its own archive
"""

import dataclasses
from dataclasses import dataclass

from dupq import storage
from dupq.encoders.description import read_description, saved_by
from dupq.encoders.kinds import learns_without_links, network_settings
from dupq.errors import DupqError, SettingError
from dupq.links.pair_files import read_pairs
from dupq.report import learning_curve
from dupq.runs import versions, writer
from dupq.runs.training_layout import TrainingFiles
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings
from dupq.shards import answer_shards, link_files, question_shards
from dupq.stages.texts import make_answer_texts, make_texts
from dupq.stages.training.fit import fit
from dupq.stages.training.prepare import gather_pairs, prepare
from dupq.stages.training.save_encoder import save_encoder
from dupq.stages.training.teacher import teach


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

    def check(self) -> Settings:
        """The settings; raises DupqError for what is wrong, before any work."""
        sites = question_shards(self.questions)[1]
        if self.links is not None:
            link_files(self.links)
        labelled = [read_pairs(storage.read_bytes(uri), sites, uri) for uri in self.pairs]
        if self.workers < 1:
            raise SettingError(f"--workers {self.workers}: at least 1 expected")
        settings = config.load(self.preset, self.assignments)
        network = network_settings(settings.encoder).found()
        settings = settings.changed(encoder=network.given())
        if self.links is None and not self.pairs and not learns_without_links(settings):
            raise SettingError(f"neither --links nor --pairs: preset {self.preset} learns from known duplicates only")
        _check_negatives(settings.training, any(len(others) for _, others in labelled))
        if settings.word_vectors.algorithm == "teacher" and not settings.teacher.encoder:
            raise SettingError("setting 'teacher.encoder' is ''; word_vectors.algorithm=teacher needs a saved encoder")
        if settings.teacher.encoder:
            teacher = storage.absolute(settings.teacher.encoder)
            read_description(teacher)
            settings = settings.changed(teacher=settings.teacher.changed(encoder=teacher))
        vectors = settings.word_vectors.file
        if not vectors:
            return settings
        if storage.kind(vectors) != "file":
            raise DupqError(f"word_vectors.file={vectors}: no such file")
        there = settings.word_vectors.changed(file=storage.absolute(vectors))
        return settings.changed(word_vectors=there)


def _check_negatives(settings: TrainingSettings, has_labelled: bool) -> None:
    has_others = settings.mined_negatives > 0 or settings.loss == "softmax" or has_labelled
    if not settings.negatives and not has_others:
        raise SettingError(
            "setting 'training.negatives' is 0; at least 1 expected, unless there are mined ones, pairs labelled 0 "
            "in a file of --pairs, or the loss is softmax"
        )


def train(job: TrainingJob) -> writer.Run:
    """Train an encoder and save it at `job.output`; returns the run, whose records tell what was done.

    The same job over the same data goes on where an earlier attempt stopped. Raises DupqError if an input is
    missing or wrong.
    """
    settings = job.check()
    shards, sites = question_shards(job.questions)
    output = storage.absolute(job.output)
    vectors = settings.word_vectors.file
    # answers are read for word vectors only, so not where there are vectors already
    answers = [] if vectors or settings.word_vectors.answers == "ignored" else answer_shards(job.questions, sites)
    inputs = {
        "questions": storage.absolute(job.questions),
        "links": storage.absolute(job.links) if job.links is not None else None,
        "pairs": [storage.absolute(uri) for uri in job.pairs],
    }
    made_from = {
        "questions": writer.content_of(job.questions),
        "links": writer.content_of(job.links) if job.links is not None else None,
        "pairs": [storage.checksum(uri) for uri in job.pairs],
        "answers": [[shard.site, storage.checksum(shard.uri)] for shard in answers],
        "word_vectors": storage.checksum(vectors) if vectors else None,
        "teacher": read_description(settings.teacher.encoder)["fingerprint"] if settings.teacher.encoder else None,
    }
    run = writer.open_run(storage.join(output, "work"), inputs, made_from, settings, versions.TRAINING)
    files = TrainingFiles(texts=run.path("texts"), links=job.links, work=run.uri, output=output)
    run.stage("texts", lambda: make_texts(shards, sites, settings.text, files.texts))
    if answers:
        files = dataclasses.replace(files, answers=run.path("answer_texts"))
        run.stage("answer_texts", lambda: make_answer_texts(answers, sites, settings.text, str(files.answers)))
    if job.pairs:
        files = dataclasses.replace(files, pairs=run.path("pairs.parquet"))
        run.stage("pairs", lambda: gather_pairs(job.pairs, files, sites))
    run.stage("prepare", lambda: prepare(files, sites, settings))
    if settings.teacher.encoder:
        run.stage("teach", lambda: teach(files, settings))
    run.stage("fit", lambda: fit(files, sites, settings, job.workers))
    if saved_by(output) != run.run_id:
        storage.delete(run.path("stages", "save.json"))
    run.stage("save", lambda: save_encoder(files, sites, settings, run.run_id))
    picture = learning_curve.picture(storage.read_json(files.curve))
    storage.write_bytes(storage.join(output, "learning_curve.svg"), picture.encode())
    run.describe()
    storage.create(run.path("_SUCCESS"), b"")
    return run
