"""The training job, stage after stage: questions and links in, an encoder out.

questions     ──texts──▶      tokens; answers too, if they were ingested
pair files    ──pairs──▶      labelled pairs, if there are any
texts, links  ──prepare──▶    split by sets of known duplicates, words and their vectors, token ids
questions     ──teach──▶      teachers' embeddings of some, if there are any
pairs         ──fit──▶        the network, by Ray Train
network       ──save──▶       the encoder, with measures on its own archive; published once it is whole

Each stage makes tables from tables (dupq/job/run.py), but for `fit`, which leaves checkpoints and weights.
`from_dump` is ingest, train and dedup, one after the other in one process and on one Ray.
"""

import logging
from dataclasses import dataclass

from dupq import storage
from dupq.archive import Shard, answer_shards, pinned, question_shards
from dupq.encoders.saved import read_description, read_settings
from dupq.job.gpus import gpus_for, until_the_end
from dupq.job.inputs import content_of, input_files
from dupq.job.run import Run
from dupq.links import FEWEST_SETS
from dupq.pipelines.arguments import Checked, DedupJob, FromDumpJob, TrainingJob
from dupq.runs import progress
from dupq.runs.records import TRAINING_VERSIONS, TrainingFiles
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.keys import Sites
from dupq.text.steps import language_of_shards, make_answer_texts, make_distinct_texts
from dupq.training.start import base_fingerprint
from dupq.training.steps.development import About, publish, save_encoder
from dupq.training.steps.fit import check_room_to_fit, fit
from dupq.training.steps.prepare import PAIRS_TO_TRAIN_ON, SETS, gather_pairs, prepare
from dupq.training.steps.teach import teach

_log = logging.getLogger(__name__)


def train(job: TrainingJob, checked: Settings | None = None) -> Run:
    """Train an encoder and save it at `job.output`; returns the run, whose records tell what was done.

    `checked` is what `job.check()` gave, if it was called before.

    The same job over the same data goes on where an earlier attempt stopped. Raises DupqError if an input is
    missing or wrong, and ClusterError if the workers have no room.
    """
    opened = open_train(job, checked)
    _log.info(f"language: {opened.language}")
    run, settings, sites = opened.run, opened.settings, opened.sites
    files, gpus = TrainingFiles(run.uri), gpus_for(job.gpus)
    if not run.has_record("fit"):
        check_room_to_fit(job.workers, gpus)
    with run.held(), until_the_end():
        run.stage("inputs", run.copy_inputs)
        texts = run.make("texts", make_distinct_texts, opened.shards, sites, settings.text)
        answers = pairs = None
        if opened.answers:
            answers = run.make("answer_texts", make_answer_texts, opened.answers, sites, settings.text)
        if job.pairs:
            uris = tuple(str(run.copy_of(f"pairs-{number}")) for number in range(len(job.pairs)))
            pairs = run.make("pairs", gather_pairs, uris, sites)
        prepared = run.make("prepare", prepare, texts, answers, run.copy_of("links"), pairs, sites, settings)
        record, taught = run.records[-1], []
        questions, known = record["rows_in"], record["counts"][PAIRS_TO_TRAIN_ON]
        _tell_what_is_left_out(record["counts"], settings)
        if settings.teacher.encoder:
            taught = run.make("teach", teach, prepared, settings, gpus)
        about = About(questions, opened.language, run.run_id)
        run.stage("fit", lambda: fit(run.uri, prepared, taught, settings, job.workers, gpus, questions, known))
        run.stage("save", lambda: save_encoder(prepared, files, sites, settings, about))
        publish(files, storage.absolute(job.output))
        run.describe()
        run.mark()
        progress.end(run.uri, "finished")
    return run


def _tell_what_is_left_out(prepared: dict[str, int], settings: Settings) -> None:
    """Say so if there are no known duplicates to train on; `prepared` are the counts of that stage."""
    has_phases = settings.title_body.epochs > 0 or bool(settings.teacher.encoder)
    if has_phases and not prepared[PAIRS_TO_TRAIN_ON]:
        _log.info(
            f"{prepared[SETS]} sets of known duplicates, and {FEWEST_SETS} at least are needed to learn from them: "
            "that phase is left out, and nothing tells how many duplicates the encoder finds"
        )


def from_dump(job: FromDumpJob, checked: Checked | None = None) -> Run:
    """Write the archive, an encoder and a run of it below `job.output`; returns the run.

    `checked` is what `job.check()` gave, if it was called before. What an earlier attempt finished is not done again.
    """
    from dupq.pipelines.dedup import dedup  # with all that they load, which training does not need
    from dupq.pipelines.ingest import ingest

    ingest(job.ingest_job(), checked)
    questions, links, encoder = (storage.join(job.output, name) for name in ("questions", "links", "encoder"))
    known = links if storage.list_files(links, ".parquet") else None
    train(TrainingJob(questions, known, encoder, job.preset, job.settings_of("train"), gpus=job.gpus))
    progress.leave()  # the training's run: what dedup's check says is not of it
    runs = storage.join(job.output, "runs")
    given, settings = (questions, encoder, runs, known, job.truth), job.settings_of("dedup")
    return dedup(DedupJob(*given, assignments=settings, gpus=job.gpus, teacher=job.teacher))


@dataclass(frozen=True)
class Opened:
    """A training, and what it reads."""

    run: Run
    settings: Settings  # with the language of the archive
    language: str  # and how it is known
    shards: list[Shard]
    answers: list[Shard]
    sites: Sites


def open_train(job: TrainingJob, checked: Settings | None) -> Opened:
    """Open the run of a training. Raises DupqError if an input is missing or wrong."""
    settings = checked or job.check()
    found, sites = question_shards(job.questions)
    shards, vectors = pinned(found), settings.word_vectors.file
    # answers are read for word vectors only, so not where there are vectors already
    answers = [] if vectors else pinned(answer_shards(job.questions, sites))
    copied = {} if job.links is None else {"links": input_files(job.links, "links")}
    for number, uri in enumerate(job.pairs):
        copied[f"pairs-{number}"] = input_files(uri, f"pairs-{number}")
    settings, language = _in_its_language(settings, shards)
    inputs = {
        "language": language,
        "questions": storage.absolute(job.questions),
        "links": storage.absolute(job.links) if job.links is not None else None,
        "pairs": [storage.absolute(uri) for uri in job.pairs],
    }
    made_from = {
        "questions": content_of(job.questions, shards),
        "answers": [[shard.site, storage.checksum(shard.uri)] for shard in answers],
        "word_vectors": storage.checksum(vectors) if vectors else None,
        "start": _start_fingerprint(settings),
        "teachers": [read_description(encoder)["fingerprint"] for encoder in settings.teacher.encoder],
    }
    work = storage.join(storage.absolute(job.output), "work")
    run = Run.open(work, inputs, made_from, settings, TRAINING_VERSIONS, copied)
    return Opened(run, settings, language, shards, answers, sites)


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
