"""On which kind of device a run's embeddings are made: on one only, as CPUs and GPUs round differently.

A JSON file beside the embeddings says which, and what else they are made by. It is written before the first of them.
"""

import logging
from collections.abc import Mapping

from dupq import storage
from dupq.errors import DupqError
from dupq.execution import cluster
from dupq.execution.gpus import Gpus, if_faster
from dupq.execution.units import Counts, skip_or
from dupq.json_files import read_whole

_log = logging.getLogger(__name__)
_CPU, _GPU = "cpu", "gpu"
_TEXTS_A_SECOND = {  # of a core, by kind of network; measured on an AMD EPYC, but for the last
    "word_bag": 70_000,
    "word_bag_cnn": 10_000,
    "cnn": 20_000,
    "bow_cnn": 15_000,
    "max_cnn": 8_000,
    "lstm": 10_000,
    "gru": 10_000,
    "sentence_transformers": 40,
}
_OTHERS = 10_000
_GPU_TEXTS_A_SECOND, _GPU_SECONDS = 100_000, 5.0  # by its process, once it has begun


def gpus_to_encode(kind: str, texts: int, gpus: Gpus) -> Gpus:
    """Return the GPUs that encode so many texts with this kind of network; with `auto` only where they are faster."""
    on_cpus = texts / (_TEXTS_A_SECOND.get(kind, _OTHERS) * cluster.cpus())
    on_gpus = _GPU_SECONDS + texts / (_GPU_TEXTS_A_SECOND * max(1, cluster.gpus()))
    return if_faster(gpus, "encoded", on_cpus, on_gpus)


def gpus_to_make(place: str, folder: str, gpus: Gpus, made_by: Mapping[str, object]) -> int:
    """How many GPUs make what goes into `folder`, 0: CPUs do. `place` is the file that says which and `made_by` what.

    A run stays on the kind of device that it was begun on. Raises DupqError if that was GPUs, and there are none.
    """

    def make() -> Counts:
        storage.delete_folder(folder)
        storage.write_json(place, {**made_by, "device": _GPU if gpus.now() else _CPU})
        return {}

    skip_or(place, make)
    found = gpus_to_go_on(place, gpus)
    if not found and gpus.wanted:
        _log.info(f"--gpus {gpus.wanted}: this run's embeddings were begun on CPUs, and are all made there")
    return found


def gpus_to_go_on(place: str, gpus: Gpus) -> int:
    """How many GPUs make more of what `place` tells of, 0: CPUs do. Raises DupqError if there are none but must be."""
    if storage.read_json(place)["device"] == _CPU:
        return 0
    found = gpus.now()
    if not found:
        raise DupqError(
            f"{place}: this run's embeddings were begun on GPUs, and there are none for it now; finish it on a cluster "
            "with GPUs, ask an autoscaling one for them with --gpus N, or begin a run in another --output"
        )
    return found


def was_begun_on_cpus(place: str) -> bool:
    """Whether `place` is there and tells of CPUs."""
    return (read_whole(place, dict[str, object]) or {}).get("device") == _CPU
