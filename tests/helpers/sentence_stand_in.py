"""A stand-in for the package sentence-transformers, which takes seconds to load: its model counts words."""

import importlib.machinery
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash

SIZE = 64
READ: list[str] = []  # all texts that models were given but single ones


def counted(text: str) -> np.ndarray:
    """What the model makes of a text: its words, counted by a hash."""
    vector = np.zeros(SIZE, np.float32)
    for word, count in Counter(text.split(" ")).items():
        vector[xxhash.xxh3_64_intdigest(word.encode()) % SIZE] += count
    return vector


def unit(text: str) -> np.ndarray:
    """Likewise, of length 1 and rounded as it is stored."""
    return (counted(text) / np.linalg.norm(counted(text))).astype(np.float16)


class StandIn:
    """Has the part of SentenceTransformer's interface that is used."""

    max_seq_length = 512

    def __init__(self, path: str, **options: Any) -> None:
        if "broken" in (Path(path) / "modules.json").read_text():
            raise OSError("no\nmodel")
        assert options["local_files_only"]
        assert not options["trust_remote_code"]

    def to(self, device: object) -> "StandIn":
        return self

    def encode(
        self, texts: Any, convert_to_tensor: bool = False, normalize_embeddings: bool = False, **options: Any
    ) -> Any:
        if isinstance(texts, str):
            return counted(texts)
        assert all(texts)
        READ.extend(texts)
        found = np.stack([counted(text) for text in texts])
        if normalize_embeddings:
            found /= np.linalg.norm(found, axis=1, keepdims=True)
        return torch.from_numpy(found) if convert_to_tensor else found


def install(monkeypatch: pytest.MonkeyPatch, on_hub: dict[str, Path] | None = None) -> None:
    """Put it in the package's place, and models by their names on the Hugging Face hub, none of them downloaded."""

    def snapshot_download(name: str, local_files_only: bool = False, **options: Any) -> str:
        if name not in (on_hub or {}) or local_files_only:
            raise OSError(f"no {name}\non the hub")
        return str((on_hub or {})[name])

    for name, part in (("sentence_transformers", StandIn), ("huggingface_hub", snapshot_download)):
        module = types.ModuleType(name)
        setattr(module, "SentenceTransformer" if part is StandIn else part.__name__, part)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    READ.clear()


def write_model(folder: Path, modules: str = "[]", weights: str = "of the model") -> Path:
    """The folder of a model."""
    folder.mkdir(parents=True)
    (folder / "modules.json").write_text(modules)
    (folder / "model.safetensors").write_text(weights)
    return folder
