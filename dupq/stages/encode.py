"""The encode stage: texts → embeddings, by a pool of actors that each hold the encoder, on GPUs if there are any.

A row of the Ray Data set is one shard: the shards alone decide what is encoded together, and so every bit of the
result, and a rerun skips finished shards. An actor holds one shard and one batch, or on a CPU the word products of
half a million words (`dupq/encoders/unpadded.py`). If no actor would get a second shard, each shard is a task: Ray
Data's own processes take longer to start than a small archive takes to encode. So it is too for what is left where an
actor died again and again, as tasks know which shard it was.
"""

import functools
import importlib.metadata
import json
import logging
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import ray

from dupq import storage
from dupq.encoders.description import read_description, read_split
from dupq.errors import DupqError
from dupq.execution import cluster, nodes, waits
from dupq.execution.tasks import Progress, Report, recorded, run_tasks, summarise
from dupq.execution.units import Counts, skip_or
from dupq.json_files import read_whole
from dupq.neighbours.embeddings import Embeddings
from dupq.recording import Written, note
from dupq.runs import versions
from dupq.runs.embeddings import embeddings_table
from dupq.runs.layout import Encoding, RunLayout
from dupq.settings.dedup import EncodeSettings
from dupq.stages.earlier import LEFT_OUT, Earlier, earlier_embeddings, find_contents, hashes_in, read_embeddings
from dupq.tables import REPRESENTATIVES, TEXTS
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites

if TYPE_CHECKING:
    from dupq.encoders.saved import SavedEncoder

_log = logging.getLogger(__name__)
_RESTARTS = 1  # of an actor that died


def check_encoder(encoder: str, sites: Sites) -> None:
    """Raise DupqError for an encoder that is missing, damaged, or has weights that are no numbers."""
    from dupq.encoders.saved import load

    load(encoder)
    read_split(encoder, sites)


def check_room_to_encode(settings: EncodeSettings, shards: int, made_as: str) -> None:
    """Raise ClusterError, before any work, if a cluster that cannot grow has no room for what encoding will ask for.

    `made_as` is the file of the run that says on which kind of device it was begun, if it was.
    """
    if cluster.may_grow():
        return
    begun = read_whole(made_as, dict[str, object])
    gpus = 0 if begun and begun.get("device") == "cpu" else settings.gpus or cluster.gpus()
    actors = _actors(settings, gpus)
    cluster.check_fits("encode", 1, 1 if gpus else 0, actors if shards > actors else 1)


def _actors(settings: EncodeSettings, gpus: int) -> int:
    return settings.actors or max(1, gpus or cluster.cpus() // 2)


def encode_texts(
    job: Encoding, sites: Sites, settings: EncodeSettings, since: RunLayout | None = None, texts: Earlier | None = None
) -> Report:
    """Embed every question of the job's texts, or only representatives if their table is given.

    Writes one file of the embeddings schema for each file of texts. Embeddings of questions whose `texts` were those of
    the run `since` are taken from there.
    """
    files = storage.list_files(job.texts, ".parquet")
    names = [file.relative for file in files]
    folders = {"texts": job.texts, "output": job.output, "contents": job.contents}
    rows = [{key: storage.join(folder, name) for key, folder in folders.items()} for name in names]
    made_by = {"encoder": read_description(job.encoder)["fingerprint"], "algorithm": versions.DEDUP["encode"]}
    gpus = gpus_for(job.made_as, settings, job.output, {**made_by, "torch": importlib.metadata.version("torch")})
    earlier = earlier_embeddings(since, storage.read_json(job.made_as), texts)
    actors = _actors(settings, gpus)
    arguments = (job.encoder, sites.names, job.representatives, settings.batch_size, bool(gpus), earlier)
    gpus_each = 1 if gpus else 0
    if len(rows) > actors:
        cluster.check_fits("encode", 1, gpus_each, actors)  # else tasks wait for each other
        try:
            return _encode_by_pool(arguments, rows, actors)
        except ray.exceptions.RayError as error:
            if isinstance(error, ray.exceptions.RayTaskError):
                raise
            _log.warning("encode: an actor died; the rest is encoded by a task a shard")
    uris = [file.uri for file in files]
    return run_tasks("encode", _encode_alone, [(arguments, row) for row in rows], gpus=gpus_each, names=uris)


_EncodeArguments = tuple[str, list[str], str | None, int, bool, Earlier | None]  # of EncodeShard


def _encode_alone(arguments: _EncodeArguments, row: dict[str, str]) -> Counts:
    return EncodeShard(*arguments).shard(row["texts"], row["output"], row["contents"])


def _encode_by_pool(arguments: _EncodeArguments, rows: list[dict[str, str]], actors: int) -> Report:
    from ray.data import ActorPoolStrategy, DataContext, from_items

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its import sets another; errors are raised as well
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.raise_original_map_exception = True  # Ray Data's own holds the actor's error as text only
    with warnings.catch_warnings():
        # Ray plans to replace max_restarts in 2.64, but has no successor yet; its default is to restart without end
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        shards = from_items(rows, override_num_blocks=len(rows)).map_batches(
            EncodeShard,
            fn_constructor_args=arguments,
            fn_constructor_kwargs={"job": nodes.build()},
            batch_size=1,
            compute=ActorPoolStrategy(size=actors),
            num_cpus=1,
            num_gpus=1 if arguments[4] else 0,
            max_restarts=_RESTARTS,
            max_task_retries=_RESTARTS,
        )
    outcomes, progress = [], Progress("encode", len(rows))
    try:
        for row in shards.iter_rows():
            note({uri: Written(*written) for uri, written in json.loads(row["written"]).items()})
            outcomes.append(({name: row[name] for name in _COUNTED}, row["peak_mb"]))
            progress.show(len(outcomes))
    except ray.exceptions.RayError as error:
        raise _cause(error) from error
    return summarise([({_COUNTED[name]: value for name, value in counts.items()}, peak) for counts, peak in outcomes])


def gpus_for(place: str, settings: EncodeSettings, embeddings: str, made_by: Mapping[str, object]) -> int:
    """How many GPUs encode. A run that was begun on one kind of device stays on it, as they round differently."""
    gpus = settings.gpus or cluster.gpus()

    def make() -> Counts:
        storage.delete_folder(embeddings)
        storage.write_json(place, {**made_by, "device": "gpu" if gpus else "cpu"})
        return {}

    skip_or(place, make)
    if storage.read_json(place)["device"] == "cpu":
        return 0
    if not gpus:
        raise DupqError(
            f"{place}: this run's embeddings were begun on GPUs, and the cluster has none now; finish it on one with "
            "GPUs, ask an autoscaling one for them with --set encode.gpus=N, or begin a run in another --output"
        )
    return gpus


_CUT, _TAKEN = "cap: texts cut at encoder.maximum_tokens", "embeddings as in the earlier run"
_COUNTED = {"rows_in": "rows_in", "rows_out": "rows_out", "cut": _CUT, "taken": _TAKEN, "left_out": LEFT_OUT}


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

    def __init__(
        self,
        encoder: str,
        sites: list[str],
        representatives: str | None,
        batch_size: int,
        gpu: bool,
        earlier: Earlier | None = None,
        job: nodes.Build | None = None,
    ) -> None:
        """`representatives` is the file of questions that others represent; None encodes all.

        `job` is what the actor's node must have; None where that is known.
        """
        self._job = job
        self._earlier = earlier
        self._encoder, self._gpu = encoder, gpu
        self._sites = Sites(sites)
        self._batch_size = batch_size
        self._representatives = representatives

    @functools.cached_property
    def _saved(self) -> "SavedEncoder":
        """The encoder; read with the first shard, as Ray gives an error of the constructor as text only."""
        import torch

        from dupq.encoders.saved import load

        torch.set_num_threads(1)
        saved = load(self._encoder)
        if self._gpu and not torch.cuda.is_available():
            raise DupqError(
                "Ray has GPUs, but torch on their nodes cannot use them; install a CUDA build of torch there"
            )
        saved.network.to("cuda" if self._gpu else "cpu")
        return saved

    @functools.cached_property
    def _represented(self) -> np.ndarray:
        return _represented(self._representatives)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Encode one shard; the batch holds one row. Raises ClusterError on a node that differs from the job's."""
        if self._job is not None:
            nodes.check_same(self._job)
        waits.tell_driver()
        places = (str(batch[name][0]) for name in ("texts", "output", "contents"))
        counts, peak, written = recorded(self.shard, *places)
        result: dict[str, Any] = {name: [counts.get(label, 0)] for name, label in _COUNTED.items()}
        result |= {"peak_mb": [peak], "written": [json.dumps(written)]}
        return {name: np.array(value) for name, value in result.items()}

    def shard(self, texts: str, output: str, contents: str = "") -> Counts:
        """Encode the file `texts`, whose hashes are in the file `contents`, unless `output` is there already."""
        return skip_or(output, lambda: self._encode(texts, output, contents))

    def _encode(self, texts: str, output: str, contents: str) -> Counts:
        table = storage.read_table(texts, TEXTS)
        table = table.filter(pa.array(~np.isin(table["key"].to_numpy(), self._represented)))
        keys = table["key"].to_numpy()
        then, left_out = self._embeddings_then(contents, keys)
        known = np.zeros(0, np.int64) if then is None else self._keys_of(then)
        encoded, cut = self._saved.reader.encode(table.filter(pa.array(~np.isin(keys, known))), self._batch_size)
        found = embeddings_table(Embeddings(keys[~np.isin(keys, known)], *encoded), self._sites)
        if then is not None:
            both = pa.concat_tables([found, then.cast(found.schema)])
            places = np.argsort(self._keys_of(both), kind="stable")
            found = both.take(pa.array(places[np.argsort(np.argsort(keys, kind="stable"), kind="stable")]))
        counts = {"rows_in": len(table), _CUT: cut, _TAKEN: len(known), LEFT_OUT: left_out}
        storage.write_table(output, found, found.schema)
        return {**counts, "rows_out": len(table)}

    def _keys_of(self, table: pa.Table) -> np.ndarray:
        return self._sites.pack_columns(table["site"], table["question_id"], "embeddings")

    def _embeddings_then(self, contents: str, keys: np.ndarray) -> tuple[pa.Table | None, int]:
        """The rows of the earlier run for those of the questions `keys`, of one site, that say what they said then.

        And how many files were left out that may hold some too.
        """
        if self._earlier is None or not len(keys):
            return None, 0
        site, mine = self._sites.names[int(keys[0]) >> ID_BITS], hashes_in([contents])
        names, then, left_out = find_contents(self._earlier, site, mine.ids)
        same = mine.ids[then.are_same(mine.ids, mine.hashes)]
        return read_embeddings(self._earlier, names, np.intersect1d(same, keys & MAXIMUM_ID)), left_out


def _represented(representatives: str | None) -> np.ndarray:
    """The keys that need no embedding, because another question represents them."""
    if representatives is None:
        return np.zeros(0, np.int64)
    table = storage.read_table(representatives, REPRESENTATIVES)
    keys = table["key"].to_numpy()
    return keys[keys != table["representative"].to_numpy()]
