"""Training by one or several workers, their checkpoints, and the lines that a user sees of each epoch.

Several workers are Ray Train's. A single worker is a plain Ray task: Ray Train starts five more processes that each
import Ray Train, which on two cores takes longer than training on a small archive.

The first worker writes checkpoints. Ray replaces a worker that dies, and a user starts a job again that dies. Either
way all workers begin at the newest checkpoint and take the steps that they would have taken.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from dupq import kinds, storage, system
from dupq.encoders.saved import read_network, weights
from dupq.errors import DupqError
from dupq.evaluation.development import TitleBuckets, body_map, development_map, has_questions
from dupq.job import cluster
from dupq.job.gpus import Gpus, end_gpu_processes, enough_memory, if_faster
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import step
from dupq.job.table import Broadcast, File, Streamed, Table
from dupq.job.tasks import RETRIES, enter, lost, measured
from dupq.kinds import JSON
from dupq.settings.config import Settings
from dupq.settings.sections import TrainingSettings
from dupq.stages.training.prepare import Prepared, known_in, negative_pool
from dupq.stages.training.teach import targets_of
from dupq.stages.training.words import sequences_in, titles_in, vocabulary_of
from dupq.system import repeating
from dupq.training import optimisation
from dupq.training.checkpoints import Checkpoints, Epoch, quality
from dupq.training.loop import LEARNING_RATE, Examples, Losses, epoch_examples, mine_negatives, train_epoch
from dupq.training.pairs import BATCH_SIZE, Sequences, positives, targets_in_order, title_body_examples

_log = logging.getLogger(__name__)
# Pairs that a core trains per second, with a word bag and with another network (estimated).
_BAGS_A_SECOND, _OTHERS_A_SECOND = 7_000, 700
# The seconds that a GPU takes to start (estimated), and for a step of some hundred pairs: 18 ms and the host's work.
_GPU_SECONDS, _GPU_SECONDS_A_STEP = 10.0, 0.03
_POLL_SECONDS = 2.0  # between two reads of the learning curve
_CURVE, _CHECKPOINTS, _TOGETHER = "learning_curve.json", "checkpoints", "ray_train"  # in the run's folder
_MEASURES = {
    "development_map": "development MAP",
    "development_body_map": "development MAP of titles and their bodies",
}


class Fitted(NamedTuple):
    """The trained network, and what each epoch gave."""

    weights: File  # of the best epoch
    curve: list[Epoch]


class _Job(NamedTuple):
    """The inputs that all workers share."""

    run: str  # URI
    prepared: Prepared
    taught: Table[kinds.KeyedVector] | None  # the teacher's embeddings
    settings: Settings
    use_gpu: bool

    def path(self, *names: str) -> str:
        """Return the URI of a file or folder of the run."""
        return storage.join(self.run, *names)


@stage("fit", version=5, drops=_TOGETHER)
def fit(
    run: Run,
    prepared: Prepared,
    taught: Table[kinds.KeyedVector] | None,
    settings: Settings,
    workers: int,
    gpus: Gpus,
) -> Fitted:
    """Train, on GPUs if there is one for each worker; with `auto` only if they are faster, as estimated."""
    gpus = if_faster(gpus, "trained", *_seconds(settings, workers, prepared.questions, prepared.pairs))
    use_gpu = workers <= gpus.now()
    job = _Job(run.uri, prepared, taught, settings, use_gpu)
    cluster.check_fits("fit", 1, int(use_gpu), workers)
    with shown(job.path(_CURVE)):
        if workers == 1:
            made = run.write("fit.safetensors", train_alone, gpus=int(use_gpu))(job)
        else:
            end_gpu_processes()  # Ray Train's workers need their GPUs
            peak_mb = _train_together(job, workers)
            made = run.write("fit.safetensors", handed_over)(job)
            run.report.tasks, run.report.peak_memory_mb = workers, peak_mb
    curve = storage.read_json(job.path(_CURVE))
    run.report.rows_in, run.report.rows_out = sum(row["examples"] for row in curve), len(curve)
    return Fitted(File(made), curve)


@step(makes=JSON)
def train_alone(job: _Job) -> bytes:
    """Return the weights that the only worker trains."""
    return _train(job, (0, 1), system.GPU if job.use_gpu else system.CPU)


def _train_together(job: _Job, workers: int) -> float:
    """Train with Ray Train, whose own files go to a folder of the run; return the first worker's peak memory (MB)."""
    from ray.exceptions import RayError, RayTaskError
    from ray.train import FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
    from ray.train.torch import TorchTrainer

    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.25")  # Ray Train notices the end so late
    filesystem, path = storage.filesystem(job.path(_TOGETHER))

    class Trainer(TorchTrainer):
        def _register_sigint_handler(self, *_: object) -> None:
            """Do nothing: with Ray's handler, Ctrl-C would wait for the end of training and take it for complete."""

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
        result: Any = trainer.fit()  # its type lacks the value that the first worker returns
        return float(result.return_value)
    except WorkerGroupError as error:
        failures = list(error.worker_failures.values())
        causes = [cause for cause in failures if isinstance(cause, DupqError)]
        deaths = [cause for cause in failures if isinstance(cause, RayError) and not isinstance(cause, RayTaskError)]
        if deaths and not causes:
            raise lost(f"fit: one of {workers} workers", RETRIES + 1, deaths[0]) from error
        raise causes[0] if causes else error from error


def train_worker(loop_config: dict[str, Any]) -> Any:  # to Ray's types nothing
    """Train as one of the workers of Ray Train; return the peak of memory (MB, float)."""
    enter(loop_config["build"])
    import ray.train
    import ray.train.torch

    job, context = loop_config["job"], ray.train.get_context()
    device = str(ray.train.torch.get_device()) if job.use_gpu else system.CPU
    if job.use_gpu and device == system.CPU:  # torch sees no GPU; `usable` raises an error that says why
        device = system.GPU
    return train_with_others(job, (context.get_world_rank(), context.get_world_size()), device)


def train_with_others(job: _Job, share: tuple[int, int], device_name: str) -> float:
    """Train with a share of every batch; return the peak of memory (MB). The first worker hands the weights over."""
    made, peak_mb = measured(_train, job, share, device_name)
    if made:
        storage.write_bytes(job.path(_TOGETHER, "weights"), made)
    return peak_mb


@step(makes=JSON)
def handed_over(job: _Job) -> bytes:
    """Return the weights that several workers trained."""
    return storage.read_bytes(job.path(_TOGETHER, "weights"))


@enough_memory()
def _train(job: _Job, share: tuple[int, int], device_name: str) -> bytes:
    """Train all epochs; the first worker also measures, saves, and returns the weights of the best epoch."""
    device = system.usable(device_name)
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)  # the device that nccl uses
    worker, training = _Worker(job, share, device), job.settings.training
    checkpoints = Checkpoints(job.path(_CHECKPOINTS), training.checkpoint_seconds)
    worker.curve = curve = checkpoints.resume(worker.network, worker.optimizer)
    optimisation.wait_for_workers()  # so that all resume at the same checkpoint
    if worker.is_first:
        storage.write_json(job.path(_CURVE), curve)  # an attempt that died may have left a longer one
    while len(curve) < worker.epochs:
        worker.train_epoch()
        if worker.is_first:
            checkpoints.save(worker.network, worker.optimizer, curve)
            storage.write_json(job.path(_CURVE), curve)
    if not worker.is_first:
        return b""
    checkpoints.restore_best(worker.network)  # even if an earlier attempt did all epochs
    worker.network.tune(worker.development_map if has_questions(worker.known) else None)
    return weights(worker.network)


class _Worker:
    """A worker's data and network, the same for all workers except rank and device."""

    def __init__(self, job: _Job, share: tuple[int, int], device: torch.device) -> None:
        """Read the data; `share` is (rank, number of workers)."""
        settings, training, prepared = job.settings, job.settings.training, job.prepared
        self.settings, self.share, self.device, self.is_first = settings, share, device, share[0] == 0
        self.sequences = sequences_in(Broadcast(prepared.examples).read())
        self.known = known = known_in(prepared.known.read(0), training)
        self.titles = None
        if settings.title_body.epochs:
            keys = [table["key"].to_numpy() for table in Streamed(prepared.titles.only("key"))]
            self.titles = TitleBuckets(
                keys, lambda number: titles_in(prepared.titles.read(number)), settings, not has_questions(known)
            )
        self.taught = targets_of(job.taught) if job.taught else None
        vocabulary = vocabulary_of(prepared.words.read(0), settings)
        self.network = read_network(prepared.start.uri, vocabulary, settings).to(device)
        self.optimizer = optimisation.optimizer_for(self.network, training) if self.network.trainable else None
        self.positives = positives(known.links, known.split, training).pairs
        self.pool = negative_pool(np.array(list(self.sequences), np.int64), known.split)
        self.curve: list[Epoch] = []
        self.epochs_before, self.epochs = 0, 1  # of a network without gradients
        if self.network.trainable:
            self.epochs_before = settings.title_body.epochs + (settings.teacher.epochs if job.taught else 0)
            self.epochs = self.epochs_before + (training.epochs if len(self.positives) else 0)

    def train_epoch(self) -> None:
        """Train the next epoch, measure it, and add its row to the curve, which is the same for all workers."""
        epoch = len(self.curve) + 1
        optimisation.seed_dropout(self.settings.training.seed, epoch, self.share[0])
        count, losses = 0, [Losses(np.zeros(0), np.zeros(0, np.int64))]
        for sequences, examples, settings, rates in self._passes(epoch):
            count += len(examples.left)
            if self.optimizer is not None and len(examples.left):
                inputs = sequences, examples, settings, self.share, rates
                losses.append(train_epoch(self.network, self.optimizer, *inputs))
                del inputs
            del sequences, examples  # before the next bucket is read
        loss = Losses(*map(np.concatenate, zip(*losses, strict=True))).mean
        row = {"epoch": epoch, "loss": loss, "development_map": None, "examples": count, **self._measured()}
        self.curve.append(cast(Epoch, row))

    def _passes(self, epoch: int) -> Iterator[tuple[Sequences, Examples, TrainingSettings, tuple[float, float]]]:
        """Yield what `train_epoch` takes in an epoch of the phase that it belongs to, for each bucket of titles."""
        training, title_body, teacher = self.settings.training, self.settings.title_body, self.settings.teacher
        if epoch > self.epochs_before:
            epoch -= self.epochs_before
            inputs = self.positives, self.pool, self.known.split
            mined = self._mined_negatives(epoch)
            examples = epoch_examples(*inputs, training, epoch, mined, self.known.wrong)
            yield self.sequences, examples, training, optimisation.decay(epoch, training)
        elif epoch > title_body.epochs:
            assert self.taught is not None
            epoch -= title_body.epochs
            targets = targets_in_order(self.taught, training.seed, epoch)
            phase = optimisation.phase_settings(training, BATCH_SIZE, teacher.learning_rate)
            yield self.sequences, targets, phase, optimisation.linear_decay(epoch, teacher.epochs)
        else:
            assert self.titles is not None
            phase = optimisation.phase_settings(training, title_body.batch_size, LEARNING_RATE)
            decay = optimisation.linear_decay(epoch, title_body.epochs)
            for bucket, done, until in self.titles.order(training.seed, epoch):
                start, end = np.interp((done, until), (0, 1), decay).tolist()
                seeds = training.seed, epoch, bucket
                yield *title_body_examples(self.titles.read(bucket), title_body, *seeds), phase, (start, end)

    def _mined_negatives(self, epoch: int) -> np.ndarray | None:
        """Return the mined negatives of an epoch; the first worker searches for all."""
        count = self.settings.training.mined_negatives
        if not (count and self.network.trainable):
            return None
        negatives = np.zeros((len(self.positives), count), np.int64)  # of other workers
        if self.is_first:
            inputs = self.positives, self.pool, self.known.split, self.settings, epoch
            negatives = mine_negatives(self.network, self.sequences, *inputs)
        return optimisation.sum_over_workers(negatives, self.device)

    def _measured(self) -> dict[str, float]:
        """Return the measure of the network by its name in the curve; none if there is too little data for it."""
        held_out = self.titles.held_out if self.titles else None
        if held_out is None and not has_questions(self.known):
            return {}
        value = np.zeros(1)  # of other workers
        if self.is_first:
            value[0] = self.development_map() if held_out is None else body_map(self.network, held_out, self.settings)
        name = "development_map" if held_out is None else "development_body_map"
        return {name: float(optimisation.sum_over_workers(value, self.device)[0])}

    def development_map(self) -> float:
        """Return MAP on development questions."""
        return development_map(self.network, self.sequences, self.known, self.settings)


@contextlib.contextmanager
def shown(curve: str) -> Iterator[None]:
    """Print each epoch as it ends. Workers may be on other machines, so this polls their file `curve`."""
    printed = len(storage.read_json(curve)) if storage.exists(curve) else 0
    if printed:
        _log.info(f"  going on after epoch {printed}")

    def follow() -> None:
        nonlocal printed
        rows = storage.read_json(curve) if storage.exists(curve) else []
        for row in rows[printed:]:
            loss = f"loss {row['loss']:.4f}" if row["loss"] else "nothing trained"  # without bodies or trained weights
            _log.info(f"  epoch {row['epoch']:3}  {loss}{_quality(row, rows)}", extra={"fields": row})
        printed = max(printed, len(rows))  # the curve gets shorter when workers begin again at a checkpoint

    try:
        with repeating(follow, _POLL_SECONDS):
            yield
    finally:
        follow()


def _quality(row: Epoch, curve: list[Epoch]) -> str:
    """Return the measure of an epoch in words, and whether it is the best so far."""
    name, value = quality(row)
    if name is None or value is None:
        return ""
    earlier = [quality(other)[1] or 0.0 for other in curve if other["epoch"] < row["epoch"]]
    mark = "  best so far" if value > max(earlier, default=-1.0) else ""
    return f"  {_MEASURES[name]} {value:.3f}{mark}"


def _seconds(settings: Settings, workers: int, questions: int, pairs: int) -> tuple[float, float]:
    """Return the estimated seconds of training on CPUs and on GPUs."""
    titles = min(questions, settings.title_body.questions) * settings.title_body.epochs
    taught = min(questions, settings.teacher.questions) * settings.teacher.epochs if settings.teacher.encoder else 0
    examples = titles + taught + pairs * settings.training.epochs
    rate = _BAGS_A_SECOND if settings.encoder.kind == "word_bag" else _OTHERS_A_SECOND
    steps = examples / settings.training.batch_size
    return examples / (rate * workers), _GPU_SECONDS + steps * _GPU_SECONDS_A_STEP / workers


def check_room_to_fit(workers: int, gpus: Gpus) -> None:
    """Raise ClusterError, before any work, if a cluster that cannot grow has no room for the workers."""
    if not cluster.may_grow():
        cluster.check_fits("fit", 1, int(workers <= (gpus.requested or 0)), workers)
