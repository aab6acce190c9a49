"""The encode stage: texts → embeddings, by a pool of actors that each hold the encoder, on GPUs if there are any.

A row of the Ray Data set is one shard: the shards alone decide what is encoded together, and so every bit of the
result, and a rerun skips finished shards. An actor holds one shard and one batch, or on a CPU the word products of
half a million words (`dupq/encoders/unpadded.py`). If no actor would get a second shard, each shard is a task: Ray
Data's own processes take longer to start than a small archive takes to encode.
"""

import logging
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from dupq import storage
from dupq.errors import DupqError
from dupq.execution import cluster
from dupq.execution.memory import measured
from dupq.execution.tasks import Counts, Progress, Report, run_tasks, skip_or, summarise
from dupq.neighbours.embeddings import Embeddings
from dupq.runs.embeddings import embeddings_table
from dupq.settings.dedup import EncodeSettings
from dupq.tables import REPRESENTATIVES, TEXTS
from dupq.text.keys import Sites

_RESTARTS = 3  # of an actor that died; a shard that kills its actor again and again ends the run


def encode_texts(
    texts: str, encoder: str, sites: Sites, representatives: str | None, settings: EncodeSettings, output: str
) -> Report:
    """Embed every question of `texts`, or only representatives if their table is given.

    Writes one file of the embeddings schema for each file of `texts` to `output`.
    """
    files = storage.list_files(texts, ".parquet")
    rows = [{"texts": file.uri, "output": storage.join(output, file.relative)} for file in files]
    gpus = gpus_for(storage.join(storage.parent(texts), "encoded_on.json"), settings)
    actors = settings.actors or max(1, gpus or cluster.cpus() // 2)
    arguments = (encoder, sites.names, representatives, settings.batch_size, bool(gpus))
    if len(rows) <= actors:
        return run_tasks("encode", _encode_alone, [(arguments, row) for row in rows], gpus=1 if gpus else 0)
    return _encode_by_pool(arguments, rows, actors)


_EncodeArguments = tuple[str, list[str], str | None, int, bool]  # of EncodeShard


def _encode_alone(arguments: _EncodeArguments, row: dict[str, str]) -> Counts:
    return EncodeShard(*arguments).shard(row["texts"], row["output"])


def _encode_by_pool(arguments: _EncodeArguments, rows: list[dict[str, str]], actors: int) -> Report:
    from ray.data import ActorPoolStrategy, DataContext, from_items

    logging.getLogger("ray.data").setLevel(logging.ERROR)  # its import sets another
    DataContext.get_current().enable_progress_bars = False
    with warnings.catch_warnings():
        # Ray plans to replace max_restarts in 2.64, but has no successor yet; its default is to restart without end
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        shards = from_items(rows, override_num_blocks=len(rows)).map_batches(
            EncodeShard,
            fn_constructor_args=arguments,
            batch_size=1,
            compute=ActorPoolStrategy(size=actors),
            num_cpus=1,
            num_gpus=1 if arguments[-1] else 0,
            max_restarts=_RESTARTS,
            max_task_retries=_RESTARTS,
        )
    outcomes, progress = [], Progress("encode", len(rows))
    try:
        for row in shards.iter_rows():
            outcomes.append(({name: row[name] for name in _COUNTED}, row["peak_mb"]))
            progress.show(len(outcomes))
    except ray.exceptions.RayError as error:
        raise _cause(error) from error
    return summarise([({_COUNTED[name]: value for name, value in counts.items()}, peak) for counts, peak in outcomes])


def gpus_for(place: str, settings: EncodeSettings) -> int:
    """How many GPUs encode. A run that was begun on one kind of device stays on it, as they round differently."""
    gpus = settings.gpus or cluster.gpus()
    if not storage.exists(place):
        storage.create(place, storage.json_bytes({"device": "gpu" if gpus else "cpu"}))
        return gpus
    if storage.read_json(place)["device"] == "cpu":
        return 0
    if not gpus:
        raise DupqError(
            f"{place}: this run's embeddings were begun on GPUs, and the cluster has none now; finish it on one with "
            "GPUs, ask an autoscaling one for them with --set encode.gpus=N, or begin a run in another --output"
        )
    return gpus


_COUNTED = {"rows_in": "rows_in", "rows_out": "rows_out", "cut": "cap: texts cut at encoder.maximum_tokens"}


def _cause(error: BaseException) -> BaseException:
    """The DupqError that an actor raised, or the error itself."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, DupqError):
            return inner
        inner = getattr(inner, "cause", None) or inner.__cause__
    return error


class EncodeShard:
    """An actor that loads the encoder once and encodes one shard after the other."""

    def __init__(self, encoder: str, sites: list[str], representatives: str | None, batch_size: int, gpu: bool) -> None:
        """`representatives` is the file of questions that others represent; None encodes all."""
        import torch

        from dupq.encoders.saved import load

        torch.set_num_threads(1)
        self._saved = load(encoder)
        if gpu and not torch.cuda.is_available():
            raise DupqError(
                "Ray has GPUs, but torch on their nodes cannot use them; install a CUDA build of torch there"
            )
        self._saved.network.to("cuda" if gpu else "cpu")
        self._sites = Sites(sites)
        self._batch_size = batch_size
        self._represented = _represented(representatives)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Encode one shard; the batch holds one row."""
        counts, peak = measured(self.shard, str(batch["texts"][0]), str(batch["output"][0]))
        result: dict[str, Any] = {name: [counts[label]] for name, label in _COUNTED.items()}
        return {name: np.array(value) for name, value in {**result, "peak_mb": [peak]}.items()}

    def shard(self, texts: str, output: str) -> Counts:
        """Encode the file `texts`, unless `output` is there already."""
        return skip_or(output, lambda: self._encode(texts, output))

    def _encode(self, texts: str, output: str) -> Counts:
        table = storage.read_table(texts, TEXTS)
        table = table.filter(pa.array(~np.isin(table["key"].to_numpy(), self._represented)))
        encoded, cut = self._saved.reader.encode(table, self._batch_size)
        counts = {"rows_in": len(table), "cap: texts cut at encoder.maximum_tokens": cut}
        found = embeddings_table(Embeddings(table["key"].to_numpy(), *encoded), self._sites)
        storage.write_table(output, found, found.schema, counts)
        return {**counts, "rows_out": len(table)}


def _represented(representatives: str | None) -> np.ndarray:
    """The keys that need no embedding, because another question represents them."""
    if representatives is None:
        return np.zeros(0, np.int64)
    table = storage.read_table(representatives, REPRESENTATIVES)
    keys = table["key"].to_numpy()
    return keys[keys != table["representative"].to_numpy()]
