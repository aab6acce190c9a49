"""Models of sentence-transformers: where one is, what tells it from others, and its vectors of questions.

The package is not installed with dupq: `pip install 'dupq[teacher]'` on every machine that encodes. A model is named by
its folder, by an installed Python package that carries one, or as on the Hugging Face hub, and is the same on every
machine: its fingerprint is looked at. Only safetensors are read, and no code of a model is run.
"""

import contextlib
import functools
import importlib.util
import io
import os
import re
from collections.abc import Iterator
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

FLOOR = 0.005  # probability of a pair by all other evidence from which its questions are read by a teacher
_PIECE = 1 << 20
_FILE = "modules.json"  # of a model's folder
_PACKAGE, _ON_HUB = re.compile(r"[A-Za-z_][\w-]*"), re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_NOT_READ = ["*.bin", "*.h5", "*.msgpack", "*.onnx", "*.ot", "onnx/*", "openvino/*"]  # other forms of the weights
_WORDS = 64  # of a body that a teacher reads: docs/decisions.md says what more and less are worth
_WORD_PIECES = 128  # of a question, at most: some languages write no spaces between words
_CHARACTERS = 16 * _WORD_PIECES  # that are cut into word pieces at all
_PAIRS_AT_ONCE = 16_384
_BATCH = {system.CPU: 1, system.GPU: 256}  # a CPU is as fast with one, and no vector depends on other texts so
_MARKS = str.maketrans(dict.fromkeys((LINK_MARK, CODE_START, CODE_END), " "))


class Teacher(NamedTuple):
    """A model that reads the questions of likely pairs."""

    name: str  # folder, package, or name on the hub
    fingerprint: int
    dimensions: int


def teacher_at(name: str, option: str) -> Teacher:
    """The teacher that `name` means. Raises DupqError, naming `option`, if there is none, or it cannot be read."""
    folder = model_folder(name, f"{option}{name}")
    fingerprint = model_fingerprint(folder)
    return Teacher(folder if os.path.isdir(name) else name, fingerprint, _dimensions(folder, fingerprint))


@functools.cache
def _dimensions(folder: str, fingerprint: int) -> int:
    """Of the model's vectors; it is loaded for it, and whatever hinders that is told before any work."""
    model = load_model(folder)
    with _readable(folder):
        return len(model.encode("text", show_progress_bar=False))


def model_folder(name: str, option: str) -> str:
    """The local folder of the model that `name` means: `name` itself, that of a package, or that of a download.

    Raises DupqError naming `option` if there is none, or sentence-transformers is missing.
    """
    require("sentence_transformers", option)
    why = ""
    folder = storage.absolute(name) if os.path.isdir(name) else _in_package(name)
    if folder is None and _ON_HUB.fullmatch(name):
        from huggingface_hub import snapshot_download

        try:
            on_hub = name if "/" in name else f"sentence-transformers/{name}"
            folder = snapshot_download(on_hub, ignore_patterns=_NOT_READ)
        except (OSError, ValueError) as error:
            why = f" ({' '.join(str(error).split())})"
    if folder is None or not (Path(folder) / _FILE).is_file():
        raise DupqError(
            f"{option}: neither the folder of a sentence-transformers model ({_FILE}), nor an installed package that "
            f"has one, nor a model of the Hugging Face hub{why}"
        )
    return folder


def _in_package(name: str) -> str | None:
    """The folder of the model in the package `name`, which is not imported."""
    spec = importlib.util.find_spec(name.replace("-", "_")) if _PACKAGE.fullmatch(name) else None
    files = sorted(Path(spec.origin).parent.rglob(_FILE)) if spec is not None and spec.origin else []
    return str(files[0].parent) if files else None


def model_fingerprint(folder: str) -> int:
    """A hash of the names and contents of all files in `folder`, from 1 to 2**63 - 1."""
    digest = xxhash.xxh3_64()
    for file in sorted(file for file in Path(folder).rglob("*") if file.is_file()):
        digest.update(f"{file.relative_to(folder).as_posix()}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
    return (digest.intdigest() >> 1) or 1


def load_model(folder: str) -> "SentenceTransformer":
    """The model in `folder`, on the CPU. Raises DupqError if it cannot be read."""
    from sentence_transformers import SentenceTransformer

    with _readable(folder), contextlib.redirect_stderr(io.StringIO()):  # progress bars
        return SentenceTransformer(
            folder,
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )


@contextlib.contextmanager
def _readable(folder: str) -> Iterator[None]:
    """Raise DupqError for whatever libraries raise that read a model: each has errors of its own."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DupqError(f"{folder}: not a readable sentence-transformers model ({reason})") from error


def teacher_texts(titles: list[str], bodies: list[str], code: str) -> list[str]:
    """What a teacher reads of questions: titles and beginnings of bodies (HTML); `code` as in `html_to_text`."""
    plain = (html_to_text(body, code).translate(_MARKS).split()[:_WORDS] for body in bodies)
    return [" ".join([title, *words])[:_CHARACTERS] for title, words in zip(titles, plain, strict=True)]


def vectors_of(teacher: Teacher, texts: list[str], device: str) -> np.ndarray:
    """The vectors (float16, shape (n, dimensions), of length 1) that a teacher has of the beginnings of n > 0 texts.

    On a CPU a vector depends on its text alone; on a GPU its last bits depend on the others. Raises DupqError if the
    model on this machine is another one, or torch cannot use the GPU.
    """
    model = _teacher(teacher, device)
    found = model.encode(texts, batch_size=_BATCH[device], normalize_embeddings=True, show_progress_bar=False)
    return found.astype(np.float16)


Vectors = tuple[np.ndarray, np.ndarray]  # of questions: ascending keys, and a row (float16 or float32) each


def cosines_of(of_left: Vectors, of_right: Vectors, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The cosine (float32) of each pair of keys; NaN where a side has no vector."""
    found = np.full(len(left), np.nan, np.float32)
    sides = (of_left, left), (of_right, right)
    rows, are_here = zip(*(indices_among(vectors[0], keys) for vectors, keys in sides), strict=True)
    both = np.flatnonzero(are_here[0] & are_here[1])
    for start in range(0, len(both), _PAIRS_AT_ONCE):
        some = both[start : start + _PAIRS_AT_ONCE]
        one, other = (vectors[1][row[some]].astype(np.float32) for (vectors, _), row in zip(sides, rows, strict=True))
        found[some] = (one * other).sum(axis=1)
    return found


@functools.lru_cache(maxsize=1)
def _teacher(teacher: Teacher, device: str) -> "SentenceTransformer":
    """The model, opened once by each process."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would be more than the task's CPUs
    folder = model_folder(teacher.name, f"the teacher {teacher.name}")
    if model_fingerprint(folder) != teacher.fingerprint:
        raise DupqError(f"{folder}: not the model that the run was begun with; it must be the same on every machine")
    model = load_model(folder).to(system.usable(device))
    model.max_seq_length = min(model.max_seq_length or _WORD_PIECES, _WORD_PIECES)
    return model
