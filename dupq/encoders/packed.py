"""An encoder in few bytes, to be started from: rows of small integers instead of floats.

The encoder that ships with dupq is such a file, base/encoder.npz; base/NOTICE.txt says what it was learned from.
"""

import hashlib
import io
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dupq.settings import config
from dupq.settings.config import Settings

BASE = Path(__file__).with_name("base") / "encoder.npz"
_SETTINGS, _WORDS, _SCALES = "settings", "words", ".scales"
_HIGHEST = 127  # of a signed byte


class Start(NamedTuple):
    """An encoder that training goes on from."""

    settings: Settings
    words: list[str]  # in the order of their ids
    tensors: dict[str, np.ndarray]  # its weights (float32) by name


def pack(start: Start) -> bytes:
    """The same bytes for the same encoder. A row of a matrix becomes integers of -127 to 127 and their scale."""
    arrays: dict[str, np.ndarray] = {
        _SETTINGS: np.frombuffer(json.dumps(config.to_dict(start.settings), sort_keys=True).encode(), np.uint8),
        _WORDS: np.frombuffer("\n".join(start.words).encode(), np.uint8),
    }
    for name, tensor in sorted(start.tensors.items()):
        if tensor.ndim < 2 or tensor.shape[1] == 1:
            arrays[name] = tensor.astype(np.float16)
            continue
        scales = np.maximum(np.abs(tensor).max(axis=1, keepdims=True) / _HIGHEST, 1e-12).astype(np.float32)
        arrays[name] = np.rint(tensor / scales).astype(np.int8)
        arrays[f"{name}{_SCALES}"] = scales
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def unpack(content: bytes) -> Start:
    """What `pack` wrote, up to the rounding of its weights."""
    with np.load(io.BytesIO(content), allow_pickle=False) as kept:
        found = {name: kept[name] for name in kept.files}
    settings = config.from_dict(json.loads(found.pop(_SETTINGS).tobytes()))
    words = found.pop(_WORDS).tobytes().decode().split("\n")
    scales = {name: found.pop(name) for name in list(found) if name.endswith(_SCALES)}
    tensors = {
        name: tensor.astype(np.float32) * scales.get(f"{name}{_SCALES}", np.float32(1))
        for name, tensor in found.items()
    }
    return Start(settings, words, tensors)


def base_fingerprint() -> str:
    """Names what the encoder that ships with dupq holds."""
    return hashlib.sha256(BASE.read_bytes()).hexdigest()
