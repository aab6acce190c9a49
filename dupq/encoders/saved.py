"""Saved encoders: their files, reading texts with them, and their fitness for an archive.

The files are safetensors, JSON and a word list; nothing is ever unpickled.

encoder.json        settings, measure, pair threshold, fitness, metrics, fingerprint; written last
model.safetensors   the weights by name, among them words.weight, the word vectors
vocabulary.txt      one word per line, in the order of the ids
split.parquet       which questions the network was trained, tuned and tested on

Torch is imported only to open a network, so that an encoder's description can be read without it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import safetensors
import safetensors.numpy
from pydantic import FiniteFloat, StringConstraints
from typing_extensions import TypedDict

from dupq import storage
from dupq.encoders.bags import KIND, Bag, Encoded
from dupq.errors import DupqError, SettingError
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.tiles import top_k
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.storage import checked, read_as
from dupq.system import require
from dupq.text.keys import Sites
from dupq.text.questions import UNKNOWN, Vocabulary, titles_and_bodies, token_ids
from dupq.text.token_arrays import TokenIds

if TYPE_CHECKING:
    import torch

    from dupq.encoders.protocol import Encoder

FORMAT = 4
FILES = ("encoder.json", "model.safetensors", "vocabulary.txt", "split.parquet")
PARTS = ("train", "development", "test")
DESCRIBED = ("format", "settings", "measure", "pair_threshold", "fitness")  # what the fingerprint covers
FITNESS_QUESTIONS = 1_000  # sampled from every archive: a body is harder to find among more of them

SPLIT = pa.schema(
    [
        pa.field("site", pa.string(), nullable=False),
        pa.field("question_id", pa.int64(), nullable=False),
        pa.field("duplicates", pa.int64(), nullable=False),  # number of the question's set of known duplicates
        pa.field("part", pa.string(), nullable=False),  # train, development or test
    ]
)

_REMEDY = "train or copy the encoder again"
FEWEST_TITLES = 50  # with bodies: fewer measure nothing
# of types, in a file's order
_NAMES = {"int64": "I64", "float64": "F64", "float32": "F32", "int32": "I32", "float16": "F16", "uint8": "U8"}
_ALIGNMENT = 8  # bytes that the header is padded to


class MeasureEntry(TypedDict):
    """How two embeddings are scored; see dupq/neighbours/embeddings.py."""

    kind: str
    dense: FiniteFloat
    lexical: FiniteFloat


class Fitness(TypedDict):
    """The fitness of an encoder, measured on a sample of questions."""

    questions: int
    unknown_words: FiniteFloat  # share of words that the encoder does not know
    bodies_found: FiniteFloat | None  # share of titles whose nearest body is their own; None if too few have both


class Description(TypedDict):
    """encoder.json."""

    format: int
    settings: dict[str, dict[str, Any]]
    measure: MeasureEntry
    pair_threshold: FiniteFloat | None
    fitness: Fitness  # on the archive of its training
    fingerprint: str
    metrics: dict[str, Any]
    run_id: NotRequired[str]


class _Pointer(TypedDict):
    """latest.json in a training's output."""

    encoder: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}-[0-9a-f]{8}$")]


def encoder_at(uri: str) -> str:
    """Return the folder of the encoder at `uri`: that folder, or the one named by a training's latest.json.

    The named folder never changes. Code that reads an encoder file by file resolves it once.
    """
    pointer = storage.join(uri, "latest.json")
    if storage.exists(storage.join(uri, "encoder.json")) or not storage.exists(pointer):
        return storage.absolute(uri)
    name = read_as(pointer, _Pointer, "train the encoder again with dupq train, which writes the file")["encoder"]
    return storage.absolute(storage.join(uri, name))


def read_description(uri: str) -> Description:
    """Return encoder.json. Raises DupqError if `uri` has no encoder, one of another format, or a damaged one."""
    uri = encoder_at(uri)
    path = storage.join(uri, "encoder.json")
    if not storage.exists(path):
        raise DupqError(f"{uri}: no encoder here (encoder.json is missing); train one with dupq train")
    description = storage.read_json(path)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise DupqError(f"{path}: not an encoder of format {FORMAT}; train it again with this version of dupq")
    return checked(description, Description, path, _REMEDY)


def read_settings(uri: str) -> Settings:
    """Return the settings that the encoder at `uri` was trained with. Raises DupqError as `read_description` does."""
    return settings_of(read_description(uri), uri)


def settings_of(description: Description, uri: str) -> Settings:
    """Return the settings in the description of the encoder at `uri`. Raises DupqError if they are not valid."""
    try:
        return Settings.parse(description["settings"])
    except SettingError as error:
        raise DupqError(f"{storage.join(uri, 'encoder.json')}: {error}; {_REMEDY}") from error


def read_measure(uri: str) -> Measure:
    """Return how the encoder at `uri` scores two embeddings."""
    return Measure(**read_description(uri)["measure"])


def read_split(uri: str, sites: Sites) -> dict[str, np.ndarray]:
    """Return the keys (int64) of the questions that an encoder was trained, tuned and tested on, by part.

    Questions of sites that are not in `sites` are left out.
    """
    keys, parts, _ = _split_in(uri, sites)
    return {part: keys[parts == part] for part in PARTS}


def read_development_links(uri: str, sites: Sites) -> np.ndarray:
    """Return pairs of known duplicates (int64, shape (m, 2), left < right) that an encoder was tuned on.

    Each question is paired with the next one of its set: enough to connect the set.
    """
    keys, parts, sets = _split_in(uri, sites)
    keys, sets = keys[parts == "development"], sets[parts == "development"]
    order = np.lexsort((keys, sets))
    keys, sets = keys[order], sets[order]
    return np.stack([keys[:-1], keys[1:]], axis=1)[sets[:-1] == sets[1:]]


def _split_in(uri: str, sites: Sites) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the keys, the parts and the sets of the questions of `sites`."""
    table = storage.read_table(storage.join(encoder_at(uri), "split.parquet"), SPLIT)
    table = table.filter(pc.is_in(table["site"], pa.array(sites.names)))
    keys = sites.pack_columns(table["site"], table["question_id"], uri)
    return keys, table["part"].to_numpy(zero_copy_only=False), table["duplicates"].to_numpy()


# All code that encodes stored texts uses the reader, so that a question has the same embedding everywhere.
#
# The fitness of an encoder is measured on a sample of the archive that it was trained on, and again on each archive
# that it encodes. An encoder for another language or field makes embeddings like any other, and no threshold would fit.


@dataclass(frozen=True)
class Reader:
    """A network, its words, and the settings by which it reads a stored text."""

    network: "Encoder | Bag"  # a Bag needs no torch
    vocabulary: Vocabulary
    settings: Settings

    def encode(self, table: pa.Table, rows: int | None = None) -> Encoded:
        """Return the embeddings of rows of TEXTS; `rows` is the size of a batch."""
        return self.encode_ids(token_ids(table, self.vocabulary, self.settings)[0], rows)

    def encode_ids(self, ids: TokenIds, rows: int | None = None) -> Encoded:
        """Return the embeddings of texts by the ids of their words; `rows` is the size of a batch."""
        if isinstance(self.network, Bag):
            return self.network.encode(ids)
        from dupq.encoders.encoding import encode

        return encode(self.network, ids, rows or self.settings.encode.batch_size)


def fitness(reader: Reader, texts: pa.Table) -> Fitness:
    """Return the fitness of an encoder for rows of TEXTS with distinct keys."""
    ids = reader.vocabulary.sequences(texts["text"], reader.settings.encoder.maximum_tokens)[0].ids
    both, bodies_found = titles_and_bodies(texts, reader.vocabulary, reader.settings), None
    if len(both.keys) >= FEWEST_TITLES:
        titles, bodies = (reader.encode_ids(side) for side in (both.titles, both.bodies))
        bodies_found = len(ranks_of_bodies(titles, bodies, 1, reader.network.measure)) / len(both.keys)
    unknown = float((ids == UNKNOWN).sum() / max(1, len(ids)))
    return Fitness(questions=len(texts), unknown_words=unknown, bodies_found=bodies_found)


def ranks_of_bodies(titles: Encoded, bodies: Encoded, k: int, measure: Measure) -> np.ndarray:
    """Return the ranks of the titles' own bodies that are among the k nearest; these come first in `bodies`."""
    numbers = np.arange(len(bodies.vectors))
    queries = Embeddings(2 * numbers[: len(titles.vectors)], *titles)  # a key is never its own neighbour
    nearest = top_k(queries, [Embeddings(2 * numbers + 1, *bodies)], k, measure)
    return nearest.ranks[nearest.neighbours == nearest.queries + 1]


def write_tensors(uri: str, tensors: Mapping[str, np.ndarray]) -> None:
    """Write the file of `safetensors.numpy.save`, tensor by tensor: wide numbers first, then by name."""
    types = list(_NAMES)
    order = dict(sorted(tensors.items(), key=lambda item: (types.index(item[1].dtype.name), item[0])))
    ends = accumulate((tensor.nbytes for tensor in order.values()), initial=0)
    header = {
        name: {"dtype": _NAMES[tensor.dtype.name], "shape": tensor.shape, "data_offsets": offsets}
        for (name, tensor), offsets in zip(order.items(), pairwise(ends), strict=True)
    }
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    with storage.open_output(uri) as sink:
        sink.write(len(encoded).to_bytes(8, "little") + encoded)
        for tensor in order.values():
            sink.write(np.ascontiguousarray(tensor).reshape(-1).view(np.uint8))


@dataclass(frozen=True)
class SavedEncoder(Reader):
    """A trained encoder."""

    network: "Encoder"
    pair_threshold: float | None  # score that separates duplicates from random pairs; None without links to choose it
    fitness: Fitness  # on the archive of its training
    metrics: dict[str, object]


def weights(network: "torch.nn.Module") -> bytes:
    """Return the weights as safetensors; the same weights give the same bytes."""
    tensors = {name: value.detach().cpu().numpy() for name, value in sorted(network.state_dict().items())}
    return safetensors.numpy.save(tensors)


def save(uri: str, encoder: SavedEncoder, run_id: str) -> str:
    """Write an encoder to the folder `uri` and return its fingerprint; `run_id` is that of its training."""
    description = save_parts(uri, encoder, run_id)
    storage.write_json(storage.join(uri, "encoder.json"), description)
    return description["fingerprint"]


def save_parts(uri: str, encoder: SavedEncoder, run_id: str) -> Description:
    """Write the weights and the words of an encoder to the folder `uri`, and return its description."""
    model, words = weights(encoder.network), encoder.vocabulary.to_bytes()
    description = {
        "format": FORMAT,
        "settings": config.to_dict(encoder.settings),
        "measure": asdict(encoder.network.measure),
        "pair_threshold": encoder.pair_threshold,
        "fitness": encoder.fitness,
    }
    storage.write_bytes(storage.join(uri, "model.safetensors"), model)
    storage.write_bytes(storage.join(uri, "vocabulary.txt"), words)
    rest = {"fingerprint": _fingerprint(model, words, description), "metrics": encoder.metrics, "run_id": run_id}
    return cast(Description, description | rest)


def read_network(uri: str, vocabulary: Vocabulary, settings: Settings) -> "Encoder":
    """Return the network of a file of weights."""
    from dupq.encoders.encoding import rebuild

    network = rebuild(settings.encoder, read_weights(storage.read_bytes(uri), uri), uri)
    network.set_vocabulary(vocabulary.words)
    return network


def load(uri: str) -> SavedEncoder:
    """Open an encoder. Raises DupqError if files are missing, damaged or from different trainings."""
    from dupq.encoders.encoding import rebuild

    uri = encoder_at(uri)
    description, settings, weights, vocabulary = _read(uri)
    try:
        network = rebuild(settings.encoder, weights, storage.join(uri, "model.safetensors"))
    except SettingError as error:
        raise DupqError(f"{storage.join(uri, 'encoder.json')}: {error}; train the encoder again") from error
    network.set_vocabulary(vocabulary.words)
    threshold, metrics = description["pair_threshold"], description["metrics"]
    return SavedEncoder(network, vocabulary, settings, threshold, description["fitness"], metrics)


def load_words(uri: str) -> tuple[Vocabulary, Settings]:
    """Open the words and the settings of an encoder, whose other files are neither read nor checked against them."""
    settings = read_settings(uri)
    words = storage.read_bytes(storage.join(encoder_at(uri), "vocabulary.txt"))
    return Vocabulary.from_bytes(words, settings.text), settings


def load_reader(uri: str) -> Reader:
    """Open an encoder for encoding on the CPU; a weighted bag of words needs no torch for that.

    Raises DupqError as `load` does, and if torch is needed and missing.
    """
    uri = encoder_at(uri)
    kind = read_settings(uri).encoder.kind
    if kind != KIND:
        require("torch", f"{uri}, an encoder of kind {kind},")
        return load(uri)
    _, settings, weights, vocabulary = _read(uri)
    return Reader(Bag.of(weights), vocabulary, settings)


def _read(uri: str) -> tuple[Description, Settings, dict[str, np.ndarray], Vocabulary]:
    """Return the description, the settings, the weights by name, and the words."""
    description = read_description(uri)
    model = storage.read_bytes(storage.join(uri, "model.safetensors"))
    words = storage.read_bytes(storage.join(uri, "vocabulary.txt"))
    described: dict[str, object] = {name: value for name, value in description.items() if name in DESCRIBED}
    if _fingerprint(model, words, described) != description["fingerprint"]:
        raise DupqError(f"{uri}: the encoder's files are damaged or from different trainings; train or copy it again")
    settings = settings_of(description, uri)  # of the description just read: the file may have been replaced
    tensors = read_weights(model, storage.join(uri, "model.safetensors"))
    return description, settings, tensors, Vocabulary.from_bytes(words, settings.text)


def read_weights(content: bytes, path: str) -> dict[str, np.ndarray]:
    """Return the weights by name that `weights` wrote.

    Raises DupqError naming `path` if they are not readable, or not all finite, as after a training that diverged.
    """
    try:
        tensors = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:  # also for types unknown to numpy
        raise DupqError(f"{path}: not readable ({error}); {_REMEDY}") from error
    for name, value in tensors.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise DupqError(
                f"{path}: the weights '{name}' are not all finite; train the encoder again, with a lower learning rate"
            )
    return tensors


def _fingerprint(model: bytes, words: bytes, description: dict[str, object]) -> str:
    digest = hashlib.sha256()
    for content in (model, words, storage.json_bytes(description)):
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()
