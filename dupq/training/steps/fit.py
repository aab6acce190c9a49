"""The trainer: its workers, what they leave after each epoch, and what is seen of it meanwhile.

Several workers are Ray Train's. One alone is a plain Ray task: Ray Train's controller and monitors are five more
processes that each import Ray Train, which on two cores takes longer than training on a small archive.

After each epoch the first worker writes a checkpoint. A worker that dies is replaced by Ray, and a job that dies is
started again by hand; either way all workers begin at the newest checkpoint, and take the steps that they would have
taken.
"""

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from dupq import storage, system
from dupq.errors import DupqError
from dupq.job import cluster
from dupq.job.gpus import WORKERS, Gpus, if_faster
from dupq.job.step import Counts
from dupq.job.table import Table, Whole
from dupq.job.tasks import RETRIES, Report, enter, lost, run_tasks
from dupq.report import charts
from dupq.runs.records import TrainingFiles
from dupq.settings.config import Settings
from dupq.settings.sections import TrainingSettings
from dupq.system import note, repeating
from dupq.training.pairs import Sequences, positives, title_body_examples
from dupq.training.steps.development import Development, TitleBuckets, development_map, has_questions, network_at
from dupq.training.steps.prepare import Prepared, known_in, negative_pool
from dupq.training.steps.teach import targets_of
from dupq.training.steps.words_and_ids import sequences_in, vocabulary_of

if TYPE_CHECKING:
    import torch

    from dupq.training.checkpoints import Checkpoints, Epoch
    from dupq.training.loop import Examples, Losses

_log = logging.getLogger(__name__)
# Pairs of questions that a core trains a word bag with, and another network (estimated); of a GPU the seconds to start
# (estimated), and of a step of some hundred pairs: 18 ms, and the host deals out texts.
_BAGS_A_SECOND, _OTHERS_A_SECOND = 7_000, 700
_GPU_SECONDS, _GPU_SECONDS_A_STEP = 10.0, 0.03
_POLL_SECONDS = 2.0  # between two looks at the learning curve
_MEMORY = "training.json"  # what the first worker took


class _Job(NamedTuple):
    """What all workers have in common."""

    work: str
    prepared: Prepared
    taught: list[Table]  # of each teacher
    settings: Settings
    use_gpu: bool


def fit(
    work: str,
    prepared: Prepared,
    taught: list[Table],
    settings: Settings,
    workers: int,
    gpus: Gpus,
    questions: int,
    pairs: int,
) -> Report:
    """Train, on GPUs if there is one for each worker; the best weights and the learning curve are left in `work`.

    `questions` of the archive and `pairs` of known duplicates tell how long it takes: with `auto` GPUs train only where
    they are faster.
    """
    gpus = if_faster(gpus, "trained", *_seconds(settings, workers, questions, pairs))
    use_gpu, files, memory = workers <= gpus.now(), TrainingFiles(work), storage.join(work, _MEMORY)
    job = _Job(work, prepared, taught, settings, use_gpu)
    if gpus.now() and not use_gpu:
        _log.info(f"fit: {workers} workers and {gpus.now()} GPU(s): they compute on CPUs")
    cluster.check_fits("fit", 1, int(use_gpu), workers)
    with shown(files.curve):
        if workers == 1:
            alone = job, (0, 1), system.GPU if use_gpu else system.CPU
            run_tasks("fit", _train, [alone], gpus=int(use_gpu))
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
    )


@contextlib.contextmanager
def shown(curve: str) -> Iterator[None]:
    """Print each epoch as it ends. The workers may be on other machines: `curve` is the file that they report by."""
    printed = len(storage.read_json(curve)) if storage.exists(curve) else 0
    if printed:
        _log.info(f"  going on after epoch {printed}")

    def follow() -> None:
        nonlocal printed
        rows = storage.read_json(curve) if storage.exists(curve) else []
        for row in rows[printed:]:
            learned = f"loss {row['loss']:.4f}" if row["loss"] else "nothing trained"  # no bodies, say, or no weights
            _log.info(f"  epoch {row['epoch']:3}  {learned}{_measured(row, rows)}", extra={"fields": row})
        printed = max(printed, len(rows))  # there are fewer where workers begin again at a checkpoint

    try:
        with repeating(follow, _POLL_SECONDS):
            yield
    finally:
        follow()


def _measured(row: "Epoch", curve: list["Epoch"]) -> str:
    from dupq.training.checkpoints import measured, measured_by

    found, name = measured(row), measured_by(row)
    if found is None or name is None:
        return ""
    before = [measured(other) or 0.0 for other in curve if other["epoch"] < row["epoch"]]
    mark = "  best so far" if found > max(before, default=-1.0) else ""
    return f"  {charts.NAMES[name]} {found:.3f}{mark}"


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
        cluster.check_fits("fit", 1, int(workers <= (gpus.requested or 0)), workers)


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
        train_loop_config={"job": job, "build": cluster.build()},
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


class _Task:
    """What a worker works with: the same for all but its rank and device."""

    def __init__(self, job: _Job, worker: tuple[int, int], device: "torch.device") -> None:
        """Read it; `worker` is its rank, and how many there are."""
        from dupq.training.checkpoints import Progress
        from dupq.training.optimisation import optimizer_for

        settings, training, prepared, tables = job.settings, job.settings.training, job.prepared, job.taught
        self.job, self.settings, self.worker, self.is_first = job, settings, worker, worker[0] == 0
        self.sequences = sequences_in(Whole(prepared.examples).read())
        self.known = known = known_in(prepared.known.read(0), training)
        self.titles = None
        if settings.title_body.epochs:
            self.titles = TitleBuckets(prepared.titles, settings, not has_questions(known))
        self.taught = targets_of(tables) if tables else None
        vocabulary = vocabulary_of(prepared.words.read(0), settings)
        self.network = network_at(prepared.start, vocabulary, settings).to(device)
        self.optimizer = optimizer_for(self.network, training) if self.network.trainable else None
        self.positives = positives(known.links, known.split, training).pairs
        self.pool = negative_pool(np.array(list(self.sequences), np.int64), known.split)
        apart = self.titles.apart if self.titles else None
        self.development = Development(known, self.sequences, apart, settings)
        self.progress = Progress()
        # epochs by gradients before those of known duplicates; and all, with none of these where there are none
        before = settings.title_body.epochs + (settings.teacher.epochs if tables else 0)
        self.epochs_before = before if self.network.trainable else 0
        known_epochs = training.epochs if len(self.positives) else 0
        self.epochs = self.epochs_before + (known_epochs if self.network.trainable else 1)


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


def _train(job: _Job, worker: tuple[int, int], device_name: str) -> Counts:
    """Do all epochs over this worker's share of every batch. The first one measures and saves."""
    import torch

    from dupq.job.tasks import peak_mb, reset_peak
    from dupq.training import optimisation
    from dupq.training.checkpoints import Checkpoints

    device = system.usable(device_name)
    reset_peak()
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where nccl works
    task, training, files = _Task(job, worker, device), job.settings.training, TrainingFiles(job.work)
    checkpoints = Checkpoints(storage.join(job.work, "checkpoints"), training.checkpoint_seconds)
    task.progress = progress = checkpoints.resume(task.network, task.optimizer)
    optimisation.meet()  # so that no worker resumes at what another one has written since
    if task.is_first:
        storage.write_json(files.curve, progress.curve)  # an attempt that died may have left another one
    while not progress.is_over(task.epochs, training.patience, task.epochs_before):
        _one_epoch(task)
        if task.is_first:
            is_last = progress.is_over(task.epochs, training.patience, task.epochs_before)
            checkpoints.save(task.network, task.optimizer, progress, is_last)
            storage.write_json(files.curve, progress.curve)
    if task.is_first:
        _finish(task, checkpoints)
        storage.write_json(storage.join(job.work, _MEMORY), {"peak_memory_mb": peak_mb()})
    return {}


def _one_epoch(task: _Task) -> None:
    """Train the next epoch, and measure it: its row is added to the curve of all workers alike."""
    from dupq.training import optimisation
    from dupq.training.loop import Losses

    progress, development = task.progress, task.development
    epoch = len(progress.curve) + 1
    optimisation.seed_dropout(task.settings.training.seed, epoch, task.worker[0])
    examples, parts = 0, [Losses(np.zeros(0), np.zeros(0, np.int64))]
    for make in _phases(task, epoch):
        count, more = _train_phase(task, make())  # one phase is in memory at a time
        examples += count
        parts += more
    losses = Losses(*map(np.concatenate, zip(*parts, strict=True)))
    measured = None
    if development.can_tell:
        found = np.array([development.measure(task.network) if task.is_first else 0.0])
        measured = float(optimisation.from_first(found, task.network.words.weight.device)[0])
    row = {"epoch": epoch, "loss": losses.mean, "development_map": None, "examples": examples}
    row[development.name] = measured
    progress.curve.append(cast("Epoch", row))


class _Phase(NamedTuple):
    """What an epoch or a part of it is trained on, and how; see train_epoch."""

    sequences: Sequences
    examples: "Examples"
    settings: TrainingSettings
    rates: tuple[float, float]


def _train_phase(task: _Task, phase: _Phase) -> "tuple[int, list[Losses]]":
    """Train a phase; return its number of examples, and the losses, if there are any."""
    from dupq.training.loop import train_epoch

    count = len(phase.examples.left)
    if task.optimizer is None or not count:
        return count, []
    for group in task.optimizer.param_groups:
        group["lr"] = phase.settings.learning_rate
    return count, [train_epoch(task.network, task.optimizer, *phase[:3], task.worker, phase.rates)]


def _phases(task: _Task, epoch: int) -> list[Callable[[], _Phase]]:
    first, before = task.settings.title_body.epochs, task.epochs_before
    if epoch > before:
        return [lambda: _known_phase(task, epoch - before)]
    return _title_body_phases(task, epoch) if epoch <= first else [lambda: _teacher_phase(task, epoch - first)]


def _title_body_phases(task: _Task, epoch: int) -> list[Callable[[], _Phase]]:
    from dupq.training.loop import LEARNING_RATE
    from dupq.training.optimisation import as_training, falling

    settings, training, titles = task.settings.title_body, task.settings.training, task.titles
    assert titles is not None
    rates, phase = falling(epoch, settings.epochs), as_training(training, settings.batch_size, LEARNING_RATE)

    def make(bucket: int, done: float, until: float) -> _Phase:
        sequences, examples = title_body_examples(titles.read(bucket), settings, training.seed, epoch, bucket)
        ends = np.interp((done, until), (0, 1), rates)
        return _Phase(sequences, examples, phase, (float(ends[0]), float(ends[1])))

    return [functools.partial(make, *bucket) for bucket in titles.order(training.seed, epoch)]


def _teacher_phase(task: _Task, epoch: int) -> _Phase:
    from dupq.training.optimisation import as_training, falling
    from dupq.training.pairs import BATCH_SIZE, targets_in_order

    settings, training = task.settings.teacher, task.settings.training
    assert task.taught is not None
    examples = targets_in_order(task.taught, training.seed, epoch)
    phase = as_training(training, BATCH_SIZE, settings.learning_rate)
    return _Phase(task.sequences, examples, phase, falling(epoch, settings.epochs))


def _known_phase(task: _Task, epoch: int) -> _Phase:
    from dupq.training.loop import epoch_examples
    from dupq.training.optimisation import rates

    training, mined = task.settings.training, _mined(task, epoch)
    examples = epoch_examples(task.positives, task.pool, task.known.split, training, epoch, mined, task.known.wrong)
    return _Phase(task.sequences, examples, training, rates(epoch, training))


def _mined(task: _Task, epoch: int) -> np.ndarray | None:
    """Return the mined negatives of an epoch, found by the first worker for all."""
    from dupq.training import optimisation
    from dupq.training.loop import mine

    training = task.settings.training
    if not (training.mined_negatives and task.network.trainable):
        return None
    found = np.zeros((len(task.positives), training.mined_negatives), np.int64)
    if task.is_first:
        given = (task.positives, task.pool, task.known.split, task.settings, epoch)
        found = mine(task.network, task.sequences, *given)
    return optimisation.from_first(found, task.network.words.weight.device)


def _finish(task: _Task, checkpoints: "Checkpoints") -> None:
    """Leave the weights of the best epoch, and the curve, also where an earlier attempt did all epochs."""
    from dupq.encoders.saved import weights

    files, network = TrainingFiles(task.job.work), task.network
    checkpoints.restore_best(network, task.progress)
    tuned_by = functools.partial(development_map, network, task.sequences, task.known, task.settings)
    network.tune(tuned_by if has_questions(task.known) else None)
    storage.write_bytes(files.weights, weights(network))
    storage.write_json(files.curve, task.progress.curve)
