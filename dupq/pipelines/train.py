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

import functools
import logging

from dupq import storage
from dupq.execution.gpus import gpus_for, until_the_end
from dupq.job.run import make_tables
from dupq.links.split import FEWEST_SETS
from dupq.pipelines.arguments import Checked, DedupJob, FromDumpJob, TrainingJob
from dupq.pipelines.open_train import open_train, unchanged
from dupq.runs import log, progress, writer
from dupq.runs.layout import TrainingFiles
from dupq.settings.config import Settings
from dupq.text.steps import make_answer_texts, make_distinct_texts
from dupq.training.steps.development import About, publish, save_encoder
from dupq.training.steps.fit import Learned, check_room_to_fit, fit
from dupq.training.steps.prepare import PAIRS_TO_TRAIN_ON, SETS, Texts, gather_pairs, prepare
from dupq.training.steps.teach import teach

_log = logging.getLogger(__name__)


def train(job: TrainingJob, checked: Settings | None = None) -> writer.Run:
    """Train an encoder and save it at `job.output`; returns the run, whose records tell what was done.

    `checked` is what `job.check()` gave, if it was called before.

    The same job over the same data goes on where an earlier attempt stopped. Raises DupqError if an input is
    missing or wrong, and ClusterError if the workers have no room.
    """
    opened = open_train(job, checked)
    _log.info(f"language: {opened.language}")
    run, settings, sites = opened.run, opened.settings, opened.sites
    check, make, files = unchanged(settings), functools.partial(make_tables, run), TrainingFiles(run.uri)
    gpus = gpus_for(job.gpus)
    if not run.has_record("fit"):
        check_room_to_fit(job.workers, gpus)
    with run.held(), until_the_end():
        opened.copy()
        texts = make("texts", make_distinct_texts, opened.shards, sites, settings.text)
        answers = pairs = None
        if opened.answers:
            answers = make("answer_texts", make_answer_texts, opened.answers, sites, settings.text)
        if opened.pairs:
            pairs = make("pairs", gather_pairs, opened.copied_pairs, sites)
        read = Texts(texts, answers), opened.copied_links, pairs, sites, settings
        prepared = make("prepare", lambda steps: check(prepare(steps, *read)))
        record, taught = run.records[-1], []
        questions, known = record["rows_in"], record["counts"][PAIRS_TO_TRAIN_ON]
        _tell_what_is_left_out(record["counts"], settings)
        if settings.teacher.encoder:
            taught = make("teach", lambda steps: check(teach(steps, prepared, settings, gpus)))
        learned, about = Learned(prepared, taught), About(questions, opened.language, run.run_id)
        run.stage("fit", lambda: fit(run.uri, learned, settings, job.workers, gpus, questions, known))
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


def from_dump(job: FromDumpJob, checked: Checked | None = None) -> writer.Run:
    """Write the archive, an encoder and a run of it below `job.output`; returns the run.

    `checked` is what `job.check()` gave, if it was called before. What an earlier attempt finished is not done again.
    """
    from dupq.pipelines.dedup import dedup  # with all that they load, which training does not need
    from dupq.pipelines.ingest import ingest

    ingest(job.ingest_job(), checked)
    questions, links, encoder = (storage.join(job.output, name) for name in ("questions", "links", "encoder"))
    known = links if storage.list_files(links, ".parquet") else None
    train(TrainingJob(questions, known, encoder, job.preset, job.settings_of("train"), gpus=job.gpus))
    log.leave()  # the training's run: what dedup's check says is not of it
    runs = storage.join(job.output, "runs")
    given, settings = (questions, encoder, runs, known, job.truth), job.settings_of("dedup")
    return dedup(DedupJob(*given, assignments=settings, gpus=job.gpus, teacher=job.teacher))
