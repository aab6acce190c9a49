"""Safetensors files that are written tensor by tensor, without a copy of them all in memory (but on S3)."""

import json
from collections.abc import Mapping

import numpy as np

from dupq import storage

_NAMES = {"int64": "I64", "float64": "F64", "float32": "F32", "int32": "I32", "float16": "F16"}  # in a file's order
_RANKS = {name: rank for rank, name in enumerate(_NAMES)}
_ALIGNED = 8  # bytes that the header is padded to


def write_tensors(uri: str, tensors: Mapping[str, np.ndarray]) -> None:
    """The file that `safetensors.numpy.save` gives: tensors of longer numbers first, then by name."""
    order = sorted(tensors, key=lambda name: (_RANKS[tensors[name].dtype.name], name))
    header: dict[str, object] = {}
    end = 0
    for name in order:
        tensor = tensors[name]
        place = [end, end + tensor.nbytes]
        header[name] = {"dtype": _NAMES[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": place}
        end += tensor.nbytes
    described = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    described += b" " * (-len(described) % _ALIGNED)
    with storage.open_output(uri) as sink:
        sink.write(len(described).to_bytes(8, "little") + described)
        for name in order:
            sink.write(np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8))
