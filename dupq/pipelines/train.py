"""The training job, stage by stage: questions and links in, an encoder out.

    questions     ──texts──▶      tokens; those of answers too, if any were ingested
    pair files    ──pairs──▶      labelled pairs, if any
    texts, links  ──prepare──▶    split by sets of known duplicates, words and their vectors, token ids
    questions     ──teach──▶      the teachers' embeddings of a sample, if there are teachers
    pairs         ──fit──▶        the network, by Ray Train
    network       ──save──▶       the encoder, with measures on its own archive; published once it is whole

Each stage makes tables from tables (dupq/job/run.py), except `fit`, which writes checkpoints and weights.
`from_dump` runs ingest, train and dedup, one after the other in one process and on one Ray.
"""

import logging

from dupq import storage
from dupq.archive import Shard, answer_shards, pinned, question_shards
from dupq.encoders.saved import read_description, read_settings
from dupq.encoders.sentence_models import model_fingerprint, model_folder
from dupq.job.gpus import gpus_for, until_the_end
from dupq.job.inputs import content_of, input_files
from dupq.job.run import Run
from dupq.job.tasks import run_tasks
from dupq.links import FEWEST_SETS
from dupq.pipelines.arguments import Checked, DedupJob, FromDumpJob, TrainingJob
from dupq.runs import progress
from dupq.runs.records import TRAINING_VERSIONS, TrainingFiles
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.steps import language_of_shards, make_answer_texts, make_distinct_texts
from dupq.training.start import base_fingerprint
from dupq.training.steps.development import publish, save_encoder
from dupq.training.steps.fit import check_room_to_fit, fit
from dupq.training.steps.prepare import PAIRS_TO_TRAIN_ON, SETS, gather_pairs, prepare
from dupq.training.steps.teach import teach

_log = logging.getLogger(__name__)


def train(job: TrainingJob, checked: Settings | None = None) -> Run:
    """Train an encoder, save it at `job.output`, and return the run, whose records say what was done.

    `checked` is what `job.check()` returned, if it was called before. The same job over the same data resumes where an
    earlier attempt stopped. Raises DupqError if an input is missing or wrong, and ClusterError if the workers have no
    room.
    """
    settings = checked or job.check()
    shards, sites = question_shards(job.questions)
    shards = pinned(shards)  # an ingest may replace them at any moment
    # only word vectors are learned from answers
    answered = [] if settings.word_vectors.file else pinned(answer_shards(job.questions, sites))
    settings, language = _with_language(settings, shards, job.assignments)
    run = _open(job, settings, shards, answered, language)
    _log.info(f"language: {language}")
    files, gpus = TrainingFiles(run.uri), gpus_for(job.gpus)
    if not run.has_record("fit"):
        check_room_to_fit(job.workers, gpus)
    with run.held(), until_the_end():
        run.stage("inputs", run.copy_inputs)
        texts = run.make("texts", make_distinct_texts, shards, sites, settings.text)
        answers = pairs = None
        if answered:
            answers = run.make("answer_texts", make_answer_texts, answered, sites, settings.text)
        if job.pairs:
            uris = tuple(str(run.copy_of(f"pairs-{number}")) for number in range(len(job.pairs)))
            pairs = run.make("pairs", gather_pairs, uris, sites)
        prepared = run.make("prepare", prepare, texts, answers, run.copy_of("links"), pairs, sites, settings)
        questions, counts = run.records[-1]["rows_in"], run.records[-1]["counts"]
        known = counts[PAIRS_TO_TRAIN_ON]
        learns_from_pairs = settings.title_body.epochs > 0 or bool(settings.teacher.encoder)
        if learns_from_pairs and not known:
            _log.info(
                f"{counts[SETS]} sets of known duplicates, and {FEWEST_SETS} at least are needed to learn from them: "
                "that phase is left out, and nothing tells how many duplicates the encoder finds"
            )
        taught = run.make("teach", teach, prepared, settings, gpus) if settings.teacher.encoder else []
        run.stage("fit", lambda: fit(run.uri, prepared, taught, settings, job.workers, gpus, questions, known))
        saved = prepared, files, sites.names, settings, questions, language, run.run_id
        run.stage("save", lambda: run_tasks("save", save_encoder, [saved]))
        publish(files, storage.absolute(job.output))
        run.describe()
        run.mark()
        progress.end(run.uri, "finished")
    return run


def _with_language(settings: Settings, shards: list[Shard], assignments: tuple[str, ...]) -> tuple[Settings, str]:
    """Return the settings with the archive's language, and that language in words, with how it was determined."""
    vectors, named = settings.word_vectors, settings.text.language
    if named != "auto":
        return settings, f"{named}, named by text.language"
    if vectors.goes_on and vectors.start != "base":
        started = read_settings(vectors.start).text.language
        how = f"{started}, as of the encoder that training goes on from"
        return config.in_language(settings, started, assignments), how
    language, in_words = language_of_shards(shards)
    return config.in_language(settings, language, assignments), in_words


def _open(job: TrainingJob, settings: Settings, shards: list[Shard], answers: list[Shard], language: str) -> Run:
    """Open the run that is made from the present contents of these shards and of the job's other inputs."""
    copied = {f"pairs-{number}": input_files(uri, f"pairs-{number}") for number, uri in enumerate(job.pairs)}
    if job.links is not None:
        copied["links"] = input_files(job.links, "links")
    inputs = {
        "language": language,
        "questions": storage.absolute(job.questions),
        "links": storage.absolute(job.links) if job.links is not None else None,
        "pairs": [storage.absolute(uri) for uri in job.pairs],
    }
    vectors, start = settings.word_vectors, None
    if vectors.goes_on:
        start = base_fingerprint() if vectors.start == "base" else read_description(vectors.start)["fingerprint"]
    made_from: dict[str, object] = {
        "questions": content_of(job.questions, shards),
        "answers": [[shard.site, storage.checksum(shard.uri)] for shard in answers],
        "word_vectors": storage.checksum(vectors.file) if vectors.file else None,
        "start": start,
        "teachers": [read_description(encoder)["fingerprint"] for encoder in settings.teacher.encoder],
    }
    if settings.encoder.kind == "sentence_transformers":
        model = str(settings.encoder.model_dump().get("model", ""))
        made_from["model"] = model_fingerprint(model_folder(model, f"encoder.model={model}"))
    return Run.open(storage.join(job.output, "work"), inputs, made_from, settings, TRAINING_VERSIONS, copied)


def from_dump(job: FromDumpJob, checked: Checked | None = None) -> Run:
    """Write an archive, an encoder trained on it, and a run over it below `job.output`; return the run.

    `checked` is what `job.check()` returned, if it was called before. What an earlier attempt finished is not repeated.
    """
    from dupq.pipelines.dedup import dedup  # these load much that training does not need
    from dupq.pipelines.ingest import ingest

    ingest(job.ingest_job(), checked)
    questions, links, encoder = (storage.join(job.output, name) for name in ("questions", "links", "encoder"))
    known = links if storage.list_files(links, ".parquet") else None
    train(TrainingJob(questions, known, encoder, job.preset, job.settings_of("train"), gpus=job.gpus))
    progress.leave()  # the checks of dedup must not be logged in the training's run
    runs, settings = storage.join(job.output, "runs"), job.settings_of("dedup")
    inputs = questions, encoder, runs, known, job.truth
    return dedup(DedupJob(*inputs, assignments=settings, gpus=job.gpus, teacher=job.teacher))
