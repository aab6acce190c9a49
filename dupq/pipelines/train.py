"""The training job, stage by stage: questions and links in, an encoder out.

    questions     ──texts──▶      tokens; those of answers too, if any were ingested
    pair files    ──pairs──▶      labelled pairs, if any
    texts, links  ──prepare──▶    split by sets of known duplicates, words and their vectors, token ids
    questions     ──teach──▶      the teacher's embeddings of a sample, if there is one
    pairs         ──fit──▶        the network, by Ray Train
    network       ──save──▶       the encoder, with measures on its own archive; published once it is whole

Each stage makes tables or files from tables (dupq/job/stage.py).
`from_dump` runs ingest, train and dedup, one after the other in one process and on one Ray.
"""

import logging

from dupq import storage
from dupq.job import progress
from dupq.job.gpus import gpus_for, until_the_end
from dupq.job.records import record_of
from dupq.job.run import Run
from dupq.links import FEWEST_SETS
from dupq.pipelines.arguments import FREE_SECTIONS, Checked, DedupJob, FromDumpJob, TrainingJob, check_compared
from dupq.pipelines.opening import open_training
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.stages.inputs import copy_inputs
from dupq.stages.texts import make_answer_texts, make_distinct_texts
from dupq.stages.training.fit import check_room_to_fit, fit
from dupq.stages.training.prepare import gather_pairs, prepare
from dupq.stages.training.save import publish, save
from dupq.stages.training.teach import teach

_log = logging.getLogger(__name__)
STAGES = copy_inputs, make_distinct_texts, make_answer_texts, gather_pairs, prepare, teach, fit, save


def train(job: TrainingJob, checked: Settings | None = None) -> Run:
    """Train an encoder, save it at `job.output`, and return the run, whose records say what was done.

    `checked` is what `job.check()` returned, if it was called before. The same job over the same data resumes where an
    earlier attempt stopped. Raises DupqError if an input is missing or wrong, and ClusterError if the workers have no
    room.
    """
    progress.phase("training an encoder")
    opened = open_training(job, checked, STAGES)
    _log.info(f"language: {opened.language}")
    run, settings, sites = opened.run, opened.settings, opened.sites
    gpus = gpus_for(job.gpus)
    if not storage.exists(record_of(run.uri, fit.name)):
        check_room_to_fit(job.workers, gpus)
    with run.held(), until_the_end():
        copy_inputs(run)
        texts = make_distinct_texts(run, opened.shards, sites, settings.text)
        answers = make_answer_texts(run, opened.answers, sites, settings.text) if opened.answers else None
        pairs = gather_pairs(run, len(job.pairs), sites) if job.pairs else None
        prepared = prepare(run, texts, answers, pairs, sites, settings)
        learns_from_pairs = settings.title_body.epochs > 0 or bool(settings.teacher.encoder)
        if learns_from_pairs and not prepared.pairs:
            _log.info(
                f"{prepared.sets} sets of known duplicates, and {FEWEST_SETS} at least are needed to learn from them: "
                "that phase is left out, and nothing tells how many duplicates the encoder finds"
            )
        taught = teach(run, prepared, settings, gpus) if settings.teacher.encoder else None
        fitted = fit(run, prepared, taught, settings, job.workers, gpus)
        encoder = save(run, prepared, fitted, sites, settings, opened.language)
        publish(encoder.uri, storage.absolute(job.output))
        run.describe()
        run.mark()
        progress.end(run.uri, "finished")
    return run


def from_dump(job: FromDumpJob, checked: Checked | None = None) -> Run:
    """Write an archive, an encoder trained on it, and a run over it below `job.output`; return the run.

    `checked` is what `job.check()` returned, if it was called before. What an earlier attempt finished is not repeated.
    """
    from dupq.pipelines.dedup import dedup  # these load much that training does not need
    from dupq.pipelines.ingest import ingest

    ingest(job.ingest_job(), checked)
    questions, links, encoder = (storage.join(job.output, name) for name in ("questions", "links", "encoder"))
    check_compared(config.assign_free(Settings(), job.settings_of("dedup"), FREE_SECTIONS), questions)
    known = job.links or (links if storage.list_files(links, ".parquet") else None)
    train(TrainingJob(questions, known, encoder, job.preset, job.settings_of("train"), gpus=job.gpus))
    progress.leave()  # the checks of dedup must not be logged in the training's run
    runs, settings = storage.join(job.output, "runs"), job.settings_of("dedup")
    inputs = questions, encoder, runs, known, job.truth, job.previous, settings, job.verdicts, job.gates
    return dedup(DedupJob(*inputs, gpus=job.gpus, reranker=job.reranker, command=job.command))
