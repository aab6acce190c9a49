"""The trainer: its workers, what they leave after each epoch, and what is seen of it meanwhile.

Several workers are Ray Train's. One alone is a plain Ray task: Ray Train's controller and monitors are five more
processes that each import Ray Train, which on two cores takes longer than training on a small archive.

After each epoch the first worker writes a checkpoint. A worker that dies is replaced by Ray, and a job that dies is
started again by hand; either way all workers begin at the newest checkpoint, and take the steps that they would have
taken.
"""

import functools
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from dupq import storage, system
from dupq.errors import DupqError
from dupq.execution import cluster, nodes
from dupq.execution.gpus import WORKERS, Gpus, if_faster
from dupq.execution.task_files import Counts
from dupq.execution.tasks import RETRIES, Report, enter, lost, run_tasks
from dupq.job.table import Table, Whole
from dupq.links.split import Known
from dupq.runs import log
from dupq.runs.layout import TrainingFiles
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings
from dupq.system import note
from dupq.text.questions import Vocabulary
from dupq.training.pairs import positives
from dupq.training.steps.development import Development, TitleBuckets, development_map, has_questions, network_at
from dupq.training.steps.prepare import Prepared, known_in, negative_pool
from dupq.training.steps.teach import targets_of
from dupq.training.steps.token_files import sequences_in, vocabulary_of
from dupq.training.steps.training_progress import PROGRESS, shown, watch

if TYPE_CHECKING:
    import torch

    from dupq.encoders.protocol import Encoder
    from dupq.training.checkpoints import Checkpoints, Epoch, Progress
    from dupq.training.loop import Losses, Sequences
    from dupq.training.optimisation import TeacherLoss
    from dupq.training.pairs import Distillation, DistillationTargets, Pairs, Rankings

_log = logging.getLogger(__name__)
_BAGS_A_SECOND, _OTHERS_A_SECOND = 7_000, 700  # pairs of questions that a core trains a word bag, another network, with
_GPU_SECONDS, _GPU_SECONDS_A_STEP = 10.0, 0.03  # to begin, and of a step of a few hundred pairs
_MEMORY = "training.json"  # what the first worker took
DROPPED = "mined negatives that teachers find nearly as near as the positive"  # a count of `fit`


class Learned(NamedTuple):
    """What is learned from."""

    prepared: Prepared
    taught: list[Table]  # of each teacher


class _Job(NamedTuple):
    """What all workers are told."""

    work: str
    learned: Learned
    settings: Settings
    is_watched: bool
    use_gpu: bool


def fit(
    work: str, learned: Learned, settings: Settings, workers: int, gpus: Gpus, questions: int, pairs: int
) -> Report:
    """Train, on GPUs if there is one for each worker; the best weights and the learning curve are left in `work`.

    `questions` of the archive and `pairs` of known duplicates tell how long it takes: with `auto` GPUs train only where
    they are faster.
    """
    gpus = if_faster(gpus, "trained", *_seconds(settings, workers, questions, pairs))
    use_gpu, files, memory = workers <= gpus.now(), TrainingFiles(work), storage.join(work, _MEMORY)
    job = _Job(work, learned, settings, log.is_live(), use_gpu)
    if gpus.now() and not use_gpu:
        _log.info(f"fit: {workers} workers and {gpus.now()} GPU(s): they compute on CPUs")
    cluster.check_fits("fit", 1, int(use_gpu), workers)
    with shown(files.curve, storage.join(work, PROGRESS)):
        if workers == 1:
            run_tasks("fit", _train_alone, [(job,)], gpus=int(use_gpu))
        else:
            WORKERS.end()  # Ray Train's own need their GPUs
            _train_together(job, workers)
            # Ray Train's workers tell nobody what they write, as tasks do: so that it is missed if it is lost
            note({uri: storage.as_written(uri) for uri in (files.weights, files.curve, memory)})
    curve = storage.read_json(files.curve)
    return Report(
        tasks=workers,
        rows_in=sum(row["examples"] for row in curve),
        rows_out=len(curve),
        peak_memory_mb=storage.read_json(memory)["peak_memory_mb"],
        counts={DROPPED: sum(row.get("negatives_dropped", 0) for row in curve)},
    )


def _seconds(settings: Settings, workers: int, questions: int, pairs: int) -> tuple[float, float]:
    """Return about how long `workers` train on CPUs, and on GPUs."""
    titles = min(questions, settings.title_body.questions) * settings.title_body.epochs
    taught = min(questions, settings.teacher.questions) * settings.teacher.epochs if settings.teacher.encoder else 0
    examples = titles + taught + pairs * settings.training.epochs
    rate = _BAGS_A_SECOND if settings.encoder.kind == "word_bag" else _OTHERS_A_SECOND
    steps = examples / settings.training.batch_size
    return examples / (rate * workers), _GPU_SECONDS + steps * _GPU_SECONDS_A_STEP / workers


def check_room_to_fit(workers: int, gpus: Gpus) -> None:
    """Raise ClusterError, before any work, if a cluster that cannot grow has no room for what `fit` will ask for."""
    if not cluster.may_grow():
        cluster.check_fits("fit", 1, int(workers <= (gpus.wanted or 0)), workers)


def _train_together(job: _Job, workers: int) -> None:
    """Train with Ray Train, whose own files are in a folder of the training."""
    from ray.exceptions import RayError, RayTaskError
    from ray.train import FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
    from ray.train.torch import TorchTrainer

    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.25")  # how late Ray Train sees that training ended
    filesystem, path = storage.filesystem(storage.join(job.work, "ray_train"))

    class Trainer(TorchTrainer):
        def _register_sigint_handler(self, *_: object) -> None:
            """None: with Ray's, Ctrl-C would wait for the training's end and take it for complete."""

    trainer = Trainer(
        train_worker,
        train_loop_config={"job": job, "build": nodes.build()},
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=job.use_gpu, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(
            name="fit",
            storage_path=path,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(max_failures=RETRIES),
        ),
    )
    try:
        trainer.fit()
    except WorkerGroupError as error:
        failures = list(error.worker_failures.values())
        causes = [cause for cause in failures if isinstance(cause, DupqError)]
        deaths = [cause for cause in failures if isinstance(cause, RayError) and not isinstance(cause, RayTaskError)]
        if deaths and not causes:
            raise lost(f"fit: one of {workers} workers", RETRIES + 1, deaths[0]) from error
        raise causes[0] if causes else error from error


@dataclass
class _Task:
    """What a worker works with: the same for all but its rank and device."""

    job: _Job
    worker: tuple[int, int]  # its rank, and how many there are
    vocabulary: Vocabulary
    sequences: dict[int, np.ndarray]
    known: Known
    positives: np.ndarray
    pool: np.ndarray
    titles: TitleBuckets | None  # where they are trained on
    development: Development
    taught: "DistillationTargets | None"  # where there are teachers
    teacher_loss: "TeacherLoss | None" = None  # likewise, once the network is there

    @property
    def settings(self) -> Settings:
        """The settings of the training."""
        return self.job.settings

    @property
    def is_first(self) -> bool:
        """Whether this worker measures and saves."""
        return self.worker[0] == 0


def train_worker(loop_config: dict[str, Any]) -> None:
    """Train as one of the workers of Ray Train."""
    enter(loop_config["build"])
    import ray.train
    import ray.train.torch

    job, context = loop_config["job"], ray.train.get_context()
    device = str(ray.train.torch.get_device()) if job.use_gpu else system.CPU  # of those of all workers
    if job.use_gpu and device == system.CPU:  # what Ray names where torch sees none: why is said then
        device = system.GPU
    _train(job, (context.get_world_rank(), context.get_world_size()), device)


def _train_alone(job: _Job) -> Counts:
    _train(job, (0, 1), system.GPU if job.use_gpu else system.CPU)
    return {}


def _train(job: _Job, worker: tuple[int, int], device_name: str) -> None:
    """Do all epochs over this worker's share of every batch. The first one measures and saves."""
    import torch

    from dupq.execution.tasks import peak_mb, reset_peak
    from dupq.training import optimisation
    from dupq.training.checkpoints import Checkpoints
    from dupq.training.optimisation import optimizer_for

    device = system.usable(device_name)
    reset_peak()
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where nccl works
    task, training, files = _task(job, worker), job.settings.training, TrainingFiles(job.work)
    network = network_at(job.learned.prepared.start, task.vocabulary, job.settings).to(device)
    task.teacher_loss = _teacher_loss(task, network)
    learner = torch.nn.ModuleList([network, *([task.teacher_loss] if task.teacher_loss else [])])
    optimizer = optimizer_for(learner, training) if network.trainable else None
    checkpoints = Checkpoints(storage.join(job.work, "checkpoints"), training.checkpoint_seconds, task.teacher_loss)
    progress = checkpoints.resume(network, optimizer)
    optimisation.meet()  # so that no worker resumes at what another one has written since
    if task.is_first:
        storage.write_json(files.curve, progress.curve)  # an attempt that died may have left another one
    first = _epochs_before(job.settings) if network.trainable else 0
    epochs = first + (_known_epochs(task) if network.trainable else 1)
    while not progress.is_over(epochs, training.patience, first):
        _one_epoch(task, network, optimizer, progress)
        if task.is_first:
            is_last = progress.is_over(epochs, training.patience, first)
            checkpoints.save(network, optimizer, progress, is_last)
            storage.write_json(files.curve, progress.curve)
    if task.is_first:
        _finish(task, network, checkpoints, progress)
        storage.write_json(storage.join(job.work, _MEMORY), {"peak_memory_mb": peak_mb()})


def _task(job: _Job, worker: tuple[int, int]) -> _Task:
    settings, (prepared, taught) = job.settings, job.learned
    sequences = sequences_in(Whole(prepared.examples).read())
    known = known_in(prepared.known.read(0), settings.training)
    titles = TitleBuckets(prepared.titles, settings, not has_questions(known)) if settings.title_body.epochs else None
    return _Task(
        job,
        worker,
        vocabulary_of(prepared.words.read(0), settings),
        sequences,
        known,
        positives(known.links, known.split, settings.training).pairs,
        negative_pool(np.array(list(sequences), np.int64), known.split),
        titles,
        Development(known, sequences, titles.apart if titles else None, settings),
        targets_of(taught) if taught else None,
    )


def _teacher_loss(task: _Task, network: "Encoder") -> "TeacherLoss | None":
    from dupq.training.optimisation import TeacherLoss

    if task.taught is None:
        return None
    taught, settings = task.taught.vectors.shape[1], task.settings
    loss = TeacherLoss(settings.teacher, network.dimensions, taught, settings.training.seed)
    return loss.to(network.words.weight.device)


def _one_epoch(
    task: _Task, network: "Encoder", optimizer: "torch.optim.Optimizer | None", progress: "Progress"
) -> None:
    """Train the next epoch, and measure it: its row is added to the curve of all workers alike."""
    from dupq.training import optimisation
    from dupq.training.checkpoints import epoch_scalars, event_file, file_name
    from dupq.training.loop import Losses, train_epoch
    from dupq.training.optimisation import seed_dropout

    epoch, device, development = len(progress.curve) + 1, network.words.weight.device, task.development
    seed_dropout(task.settings.training.seed, epoch, task.worker[0])
    examples, trained = 0, [Losses(np.zeros(0), np.zeros(0, np.int64))]
    for piece in _pieces(task, network, progress, epoch):
        phase = piece.make()
        count = len(phase.examples.left)
        examples += count
        if optimizer is not None and count:
            for group in optimizer.param_groups:
                group["lr"] = phase.settings.learning_rate
            steps = -(-(piece.all_examples or count) // phase.settings.batch_size)
            watch = _watch(task, epoch, steps, sum(len(losses.sums) for losses in trained))
            trained.append(train_epoch(network, optimizer, *phase[:3], task.worker, watch, phase.rates))
    losses = Losses(*(np.concatenate(each) for each in zip(*trained, strict=True)))
    names, is_measured = development.names, development.can_tell
    found = np.zeros(len(names))
    if task.is_first and is_measured:
        by_name = development.measure(network)
        found = np.array([by_name[name] for name in names])
    values = optimisation.from_first(found, device).tolist() if is_measured else [None] * len(names)
    measured = dict(zip(names, values, strict=True))
    if task.is_first:
        content = event_file(epoch_scalars(epoch, losses, measured))
        storage.write_bytes(storage.join(task.job.work, "tensorboard", file_name(epoch)), content)
    dropped = {"negatives_dropped": progress.dropped} if progress.dropped else {}
    progress.dropped = 0
    row = {"epoch": epoch, "loss": losses.mean, "development_map": None, "examples": examples, **measured, **dropped}
    progress.curve.append(cast("Epoch", row))


class _Phase(NamedTuple):
    """What an epoch or a piece of it is trained on, and how; see train_epoch."""

    sequences: "Sequences"
    examples: "Pairs | Rankings | Distillation"
    settings: TrainingSettings
    rates: tuple[float, float]


class _Piece(NamedTuple):
    """A part of an epoch that is in memory alone, when it is made; and how many examples the epoch has about."""

    make: Callable[[], _Phase]
    all_examples: int | None  # None: those of this piece


def _epochs_before(settings: Settings) -> int:
    """The epochs before those of known duplicates."""
    return settings.title_body.epochs + (settings.teacher.epochs if settings.teacher.encoder else 0)


def _known_epochs(task: _Task) -> int:
    """The epochs of known duplicates: none where there are none to train on."""
    return task.settings.training.epochs if len(task.positives) else 0


def _pieces(task: _Task, network: "Encoder", progress: "Progress", epoch: int) -> list[_Piece]:
    first, before = task.settings.title_body.epochs, _epochs_before(task.settings)
    if network.trainable and epoch <= first:
        return _title_body_pieces(task, epoch)
    if network.trainable and epoch <= before:
        return [_Piece(lambda: _teacher_phase(task, epoch - first), None)]
    return [_Piece(lambda: _known_phase(task, network, progress, epoch - (before if network.trainable else 0)), None)]


def _title_body_pieces(task: _Task, epoch: int) -> list[_Piece]:
    from dupq.training.one_process import LEARNING_RATE, title_body_examples
    from dupq.training.optimisation import as_training, falling

    settings, training, titles = task.settings.title_body, task.settings.training, task.titles
    assert titles is not None
    rates, phase = falling(epoch, settings.epochs), as_training(training, settings.batch_size, LEARNING_RATE)

    def make(bucket: int, done: float, until: float) -> _Phase:
        sequences, examples = title_body_examples(titles.read(bucket), settings, training.seed, epoch, bucket)
        ends = np.interp((done, until), (0, 1), rates)
        return _Phase(sequences, examples, phase, (float(ends[0]), float(ends[1])))

    return [_Piece(functools.partial(make, *part), titles.questions) for part in titles.order(training.seed, epoch)]


def _teacher_phase(task: _Task, epoch: int) -> _Phase:
    from dupq.training.optimisation import as_training, falling
    from dupq.training.pairs import BATCH_SIZE, Distillation, targets_in_order

    settings, training = task.settings.teacher, task.settings.training
    assert task.taught is not None
    assert task.teacher_loss is not None
    examples = Distillation(*targets_in_order(task.taught, training.seed, epoch), task.teacher_loss)
    phase = as_training(training, BATCH_SIZE, settings.learning_rate)
    return _Phase(task.sequences, examples, phase, falling(epoch, settings.epochs))


def _known_phase(task: _Task, network: "Encoder", progress: "Progress", epoch: int) -> _Phase:
    from dupq.training.loop import epoch_examples
    from dupq.training.optimisation import rates

    training = task.settings.training
    mined = _mined(task, network, progress, epoch)
    examples = epoch_examples(task.positives, task.pool, task.known.split, training, epoch, mined, task.known.wrong)
    return _Phase(task.sequences, examples, training, rates(epoch, training))


def _mined(task: _Task, network: "Encoder", progress: "Progress", epoch: int) -> np.ndarray | None:
    """The mined negatives of an epoch, found by the first worker for all."""
    from dupq.training import optimisation
    from dupq.training.mining import mine

    training = task.settings.training
    if not (training.mined_negatives and network.trainable):
        return None
    found, dropped = np.zeros((len(task.positives), training.mined_negatives), np.int64), 0
    if task.is_first:
        given = (task.positives, task.pool, task.known.split, task.settings, epoch, task.taught)
        found, dropped = mine(network, task.sequences, *given)
    device = network.words.weight.device
    progress.dropped = int(optimisation.from_first(np.array([dropped]), device)[0])
    return optimisation.from_first(found, device)


def _watch(task: _Task, epoch: int, steps: int, done: int) -> Callable[[int, Callable[[], "Losses"]], None]:
    """Return what is called after each step; only the first worker tells how far it is, and if anybody looks."""
    if not task.job.is_watched or not task.is_first:
        return lambda step, losses: None
    epochs = _epochs_before(task.settings) + _known_epochs(task)
    return watch(storage.join(task.job.work, PROGRESS), epoch, epochs, steps, done)


def _finish(task: _Task, network: "Encoder", checkpoints: "Checkpoints", progress: "Progress") -> None:
    """Leave the weights of the best epoch, and the curve, also where an earlier attempt did all epochs."""
    from dupq.encoders.saved import weights

    checkpoints.restore_best(network, progress)
    tuned_by = functools.partial(development_map, network, task.sequences, task.known, task.settings)
    network.tune(tuned_by if has_questions(task.known) else None)
    files = TrainingFiles(task.job.work)
    storage.write_bytes(files.weights, weights(network))
    storage.write_json(files.curve, progress.curve)
