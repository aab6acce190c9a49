"""The Ray side of training: what the trainer reads, and the TorchTrainer. The threshold follows in calibration.py.

prepare    one task      split, word vectors, and the texts that training needs
fit        N workers     TorchTrainer; each takes its share of every batch
calibrate  one task      threshold and probability on development links; the saved encoder
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dupq import config, storage
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import chosen
from dupq.stages.links import known_duplicates
from dupq.stages.tasks import Counts, Report, run_tasks
from dupq.tables import TEXTS
from dupq.text.keys import Sites
from dupq.text.normalisation import Normaliser
from dupq.text.vocabulary import Vocabulary
from dupq.training.split import Split, split_links

_POLL_SECONDS = 2.0


@dataclass(frozen=True)
class TrainingFiles:
    """Where training reads and writes."""

    texts: str
    links: str
    work: str
    output: str
    answers: str | None = None  # texts that only word vectors are learnt from

    @property
    def vocabulary(self) -> str:
        """The words, one a line."""
        return storage.join(self.work, "vocabulary.txt")

    @property
    def start(self) -> str:
        """The network before its first step, with the word vectors and all else that comes from the archive."""
        return storage.join(self.work, "start.safetensors")

    @property
    def examples(self) -> str:
        """The texts of the questions that training reads."""
        return storage.join(self.work, "examples.parquet")

    @property
    def weights(self) -> str:
        """The network at its best epoch."""
        return storage.join(self.work, "best.safetensors")

    @property
    def curve(self) -> str:
        """What each epoch gave."""
        return storage.join(self.work, "learning_curve.json")

    @property
    def training(self) -> str:
        """What the trainer read and took."""
        return storage.join(self.work, "training.json")


def prepare(files: TrainingFiles, sites: Sites, settings: config.Settings) -> Report:
    """Train the word vectors, start the network, and gather the texts that pairs are made of.

    Holds those texts, not the archive's.
    """
    return run_tasks("prepare", _prepare, [(files, sites.names, settings)])


class Sentences:
    """The words of an archive, text by text, as word vectors are learnt from them; can be iterated again and again.

    One file of texts is in memory at a time.
    """

    def __init__(self, folders: list[str], settings: config.Settings) -> None:
        """The texts in `folders`, of each at most `word_vectors.sentences`."""
        most = settings.word_vectors.sentences
        self._keys = {folder: chosen(all_keys(folder), most) if most else None for folder in folders}
        self._normaliser = Normaliser(settings.text)

    def __iter__(self) -> Iterator[list[str]]:
        """One list of words a text that has any."""
        for folder, keys in self._keys.items():
            for file in storage.list_files(folder, ".parquet"):
                table = storage.read_table(file.uri, TEXTS, ["text"]) if keys is None else texts_among(file.uri, keys)
                for text in table["text"].to_pylist():
                    if text:
                        yield self._normaliser.all_words(text)


class Sequences:
    """The token ids of the questions of an archive, file by file; can be iterated again and again."""

    def __init__(self, folder: str, vocabulary: Vocabulary, maximum: int) -> None:
        """The texts in `folder`, of each at most `maximum` tokens."""
        self._folder, self._vocabulary, self._maximum = folder, vocabulary, maximum

    def __iter__(self) -> Iterator[np.ndarray]:
        """One array (int32) a text, empty ones too."""
        for file in storage.list_files(self._folder, ".parquet"):
            for text in storage.read_table(file.uri, TEXTS, ["text"])["text"].to_pylist():
                yield self._vocabulary.ids(text, self._maximum)


def texts_among(uri: str, keys: np.ndarray) -> pa.Table:
    """The keys and texts of one file of texts, of the questions among `keys` only."""
    table = storage.read_table(uri, TEXTS, ["key", "text"])
    return table.filter(pa.array(np.isin(table["key"].to_numpy(), keys)))


def all_keys(folder: str) -> np.ndarray:
    """The keys of all questions, sorted: 8 bytes each."""
    files = storage.list_files(folder, ".parquet")
    return np.sort(np.concatenate([storage.read_table(file.uri, TEXTS, ["key"])["key"].to_numpy() for file in files]))


def read_links(files: TrainingFiles, sites: Sites, keys: np.ndarray) -> np.ndarray:
    """The known duplicates whose questions are both among `keys`."""
    links = known_duplicates(files.links, sites)
    return links[np.isin(links, keys).all(axis=1)]


def _prepare(files: TrainingFiles, site_names: list[str], settings: config.Settings) -> Counts:
    from dupq.training.word_vectors import make_word_vectors

    sites = Sites(site_names)
    keys = all_keys(files.texts)
    links = read_links(files, sites, keys)
    split = split_links(links, settings.training)
    _write_examples(files, keys, split, settings.training)
    folders = [files.texts] if files.answers is None else [files.texts, files.answers]
    sentences = Sentences(folders, settings)
    vectors = make_word_vectors(sentences, settings.word_vectors, settings.training.seed)
    vocabulary = Vocabulary(vectors.words, settings.text)
    storage.write_bytes(files.vocabulary, vocabulary.to_bytes())
    _write_start(files, vocabulary, vectors.table, split.links_of("train", links), settings)
    most = settings.word_vectors.sentences
    return {
        "rows_in": len(keys),
        "rows_out": len(vectors.words),
        "cap: questions over word_vectors.sentences": max(0, len(keys) - most) if most else 0,
        **vectors.caps,
    }


def _write_examples(files: TrainingFiles, keys: np.ndarray, split: Split, settings: config.TrainingSettings) -> None:
    wanted = np.union1d(split.questions, chosen(keys, settings.negative_pool))
    wanted = np.setdiff1d(wanted, split.questions_of("test"))
    tables = [texts_among(file.uri, wanted) for file in storage.list_files(files.texts, ".parquet")]
    schema = pa.schema([TEXTS.field("key"), TEXTS.field("text")])
    storage.write_table(files.examples, pa.concat_tables(tables).sort_by("key"), schema)


def _write_start(
    files: TrainingFiles, vocabulary: Vocabulary, vectors: np.ndarray, links: np.ndarray, settings: config.Settings
) -> None:
    """The network over the word vectors, with what it takes from the archive before any gradient."""
    from dupq.encoders.build import build
    from dupq.encoders.saved import weights

    maximum = settings.encoder.maximum_tokens
    sequences = read_examples(files, vocabulary, maximum)
    pairs = [(sequences[left], sequences[right]) for left, right in links.tolist()]
    network = build(settings.encoder, vectors, settings.training.seed)
    network.prepare(Sequences(files.texts, vocabulary, maximum), pairs)
    storage.write_bytes(files.start, weights(network))


def read_examples(files: TrainingFiles, vocabulary: Vocabulary, maximum: int) -> dict[int, np.ndarray]:
    """The token ids of the questions that training reads, by key, in the order of the keys."""
    examples = storage.read_table(files.examples)
    texts = zip(examples["key"].to_pylist(), examples["text"].to_pylist(), strict=True)
    return {key: vocabulary.ids(text, maximum) for key, text in texts}


def fit(files: TrainingFiles, sites: Sites, settings: config.Settings, workers: int) -> Report:
    """Train with Ray Train; the best epoch's weights and the learning curve are left in the work folder."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig, WorkerGroupError
    from ray.train.torch import TorchTrainer

    filesystem, path = storage.filesystem(storage.join(files.work, "ray_train"))
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={
            "files": asdict(files),
            "sites": sites.names,
            "settings": config.to_dict(settings),
        },
        scaling_config=ScalingConfig(
            num_workers=workers, use_gpu=_use_gpu(settings.training.gpu, workers), resources_per_worker={"CPU": 1}
        ),
        run_config=RunConfig(
            name="fit",
            storage_path=path,
            storage_filesystem=filesystem,
            failure_config=FailureConfig(max_failures=0),
        ),
    )
    storage.delete(files.curve)  # of an attempt that was cut off
    try:
        with _curve_printed(files.curve):
            trainer.fit()
    except WorkerGroupError as error:
        causes = [cause for cause in error.worker_failures.values() if isinstance(cause, DupqError)]
        raise causes[0] if causes else error from error
    curve = storage.read_json(files.curve)
    done = storage.read_json(files.training)
    return Report(tasks=workers, rows_in=done["pairs"], rows_out=len(curve), peak_memory_mb=done["peak_memory_mb"])


def _use_gpu(wish: str, workers: int) -> bool:
    from dupq.stages import cluster

    return wish == "always" or (wish == "auto" and cluster.gpus() >= workers)


@contextlib.contextmanager
def _curve_printed(uri: str) -> Iterator[None]:
    """Print each epoch as it ends: the workers may be on other machines, but the curve is a file."""
    ended = threading.Event()

    def follow() -> None:
        shown = 0
        while not ended.wait(_POLL_SECONDS):
            shown = _print_epochs(uri, shown)
        _print_epochs(uri, shown)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _print_epochs(uri: str, shown: int) -> int:
    """Print the epochs after the first `shown`; returns how many there are."""
    curve = storage.read_json(uri) if storage.exists(uri) else []
    for row in curve[shown:]:
        before = [other["development_map"] for other in curve if other["epoch"] < row["epoch"]]
        mark = "  best so far" if row["development_map"] > max(before, default=-1.0) else ""
        print(
            f"  epoch {row['epoch']:3}  loss {row['loss']:.4f}  development MAP {row['development_map']:.3f}{mark}",
            flush=True,
        )
    return len(curve)


def train_worker(loop_config: dict[str, Any]) -> None:
    """One worker of the trainer: all epochs over its share of every batch. The first one measures and saves."""
    import ray.train
    import ray.train.torch
    import torch

    from dupq.encoders.build import rebuild
    from dupq.encoders.saved import read_weights, weights
    from dupq.stages.memory import peak_mb, reset_peak
    from dupq.training.loop import epoch_examples, train_epoch
    from dupq.training.optimizers import optimizer_for

    reset_peak()
    torch.set_num_threads(1)
    files, sites = TrainingFiles(**loop_config["files"]), Sites(loop_config["sites"])
    settings = config.from_dict(loop_config["settings"])
    context = ray.train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    vocabulary = Vocabulary.from_bytes(storage.read_bytes(files.vocabulary), settings.text)
    sequences = read_examples(files, vocabulary, settings.encoder.maximum_tokens)
    archive = all_keys(files.texts)
    links = read_links(files, sites, archive)
    split = split_links(links, settings.training)
    pool = chosen(np.array(list(sequences), np.int64), settings.training.negative_pool)

    network = rebuild(settings.encoder, read_weights(storage.read_bytes(files.start), files.start), files.start)
    model = ray.train.torch.prepare_model(network) if network.trainable else network
    optimizer = optimizer_for(network, settings.training) if network.trainable else None
    torch.manual_seed(settings.training.seed + rank)  # of dropout
    curve: list[dict[str, Any]] = []
    for epoch in range(1, (settings.training.epochs if network.trainable else 1) + 1):
        examples = epoch_examples(split.links_of("train", links), pool, split, settings.training, epoch)
        loss = 0.0
        if optimizer is not None:
            loss = train_epoch(model, optimizer, sequences, examples, settings.training, (rank, workers))
        if rank == 0:
            measured = _development_map(network, sequences, split, settings)
            best = all(measured > row["development_map"] for row in curve)
            curve.append({"epoch": epoch, "loss": loss, "development_map": measured})
            if best:
                storage.write_bytes(files.weights, weights(network))
            storage.write_json(files.curve, curve)
            storage.write_json(files.training, {"pairs": len(examples.left) * epoch, "peak_memory_mb": peak_mb()})
        ray.train.report({"epoch": epoch, "loss": loss})


def _development_map(network: Any, sequences: dict[int, np.ndarray], split: Split, settings: config.Settings) -> float:
    """MAP of the development questions over a pool of the archive."""
    from dupq.encoders.encode import encode
    from dupq.evaluation.known_duplicates import retrieval
    from dupq.evaluation.rankers import EncoderRanker
    from dupq.neighbours.embeddings import Embeddings

    everything = np.array(sorted(sequences), np.int64)
    pool = np.union1d(chosen(everything, settings.training.development_pool), split.questions_of("development"))
    encoded = encode(network, [sequences[int(key)] for key in pool], settings.encode.batch_size)
    ranker = EncoderRanker(Embeddings(pool, *encoded), network.measure)
    as_test = Split(split.questions, split.sets, np.where(split.parts == "development", "test", "train"))
    measured = retrieval({"encoder": ranker}, as_test, len(pool), settings.evaluation)
    return measured["retrieval"]["encoder"]["map"]
