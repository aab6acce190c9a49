"""Saved encoders: their files, what they say of themselves, how they read texts, and whether they know an archive.

The files are safetensors, JSON and a word list; nothing is ever unpickled.

encoder.json        settings, measure, pair threshold, fitness, metrics, fingerprint; written last
model.safetensors   the weights by name, among them words.weight, the word vectors
vocabulary.txt      one word a line, in the order of the ids
split.parquet       which questions the network was trained, tuned and tested on

Torch is imported only where a network is opened, so that reading what an encoder says of itself needs none.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired

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
from dupq.neighbours.embeddings import Embeddings, Kind, Measure
from dupq.neighbours.tiles import top_k
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.storage import checked, read_as
from dupq.system import require
from dupq.text.keys import Sites
from dupq.text.questions import FIRST_WORD, UNKNOWN, Vocabulary, token_ids
from dupq.text.token_arrays import TokenIds

if TYPE_CHECKING:
    import torch

    from dupq.encoders.protocol import Encoder

FORMAT = 4
FILES = ("encoder.json", "model.safetensors", "vocabulary.txt", "split.parquet")  # all that is read of an encoder
PARTS = ("train", "development", "test")
FITNESS_QUESTIONS = 1_000  # of an archive: the more there are, the harder a body is to find, so the same everywhere

SPLIT = pa.schema(
    [
        pa.field("site", pa.string(), nullable=False),
        pa.field("question_id", pa.int64(), nullable=False),
        pa.field("duplicates", pa.int64(), nullable=False),  # the number of its set of known duplicates
        pa.field("part", pa.string(), nullable=False),  # train, development or test
    ]
)


_REMEDY = "train or copy the encoder anew"


class MeasureEntry(TypedDict):
    """How two embeddings are scored: dupq/neighbours/embeddings.py."""

    kind: Kind
    dense: FiniteFloat
    lexical: FiniteFloat


class Fitness(TypedDict):
    """The fitness of an encoder, measured on a sample of questions."""

    questions: int
    unknown_words: FiniteFloat  # share of the words read that the encoder does not know
    bodies_found: FiniteFloat | None  # share of titles whose nearest body is their own; None: too few have both


class Description(TypedDict):
    """encoder.json."""

    format: int
    settings: dict[str, dict[str, Any]]
    measure: MeasureEntry
    pair_threshold: FiniteFloat | None
    fitness: Fitness  # on the archive that it was trained on
    fingerprint: str
    metrics: dict[str, Any]
    run_id: NotRequired[str]


class _Pointer(TypedDict):
    """latest.json of a training's output."""

    encoder: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}-[0-9a-f]{8}$")]


def encoder_at(uri: str) -> str:
    """The folder of the encoder at `uri`: that folder, or the one that the latest.json of a training's output names.

    The named folder never changes. Whoever reads an encoder file by file resolves it once.
    """
    place = storage.join(uri, "latest.json")
    if storage.exists(storage.join(uri, "encoder.json")) or not storage.exists(place):
        return storage.absolute(uri)
    name = read_as(place, _Pointer, "train the encoder again with dupq train, which writes the file anew")["encoder"]
    return storage.absolute(storage.join(uri, name))


def read_description(uri: str) -> Description:
    """encoder.json; raises DupqError if there is no encoder at `uri`, of another format, or if it is damaged."""
    uri = encoder_at(uri)
    place = storage.join(uri, "encoder.json")
    if not storage.exists(place):
        raise DupqError(f"{uri}: no encoder here (encoder.json is missing); train one with dupq train")
    description = storage.read_json(place)
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise DupqError(f"{place}: not an encoder of format {FORMAT}; train it anew with this version of dupq")
    return checked(description, Description, place, _REMEDY)


def read_settings(uri: str) -> Settings:
    """The settings that the encoder at `uri` was trained with; raises DupqError as `read_description` does."""
    return settings_of(read_description(uri), uri)


def settings_of(description: Description, uri: str) -> Settings:
    """The settings in the description of the encoder at `uri`; raises DupqError as `read_description` does."""
    try:
        return config.from_dict(description["settings"])
    except SettingError as error:
        raise DupqError(f"{storage.join(uri, 'encoder.json')}: {error}; {_REMEDY}") from error


def read_measure(uri: str) -> Measure:
    """How the encoder at `uri` scores two embeddings."""
    entry = read_description(uri)["measure"]
    return Measure(entry["kind"], entry["dense"], entry["lexical"])


def read_split(uri: str, sites: Sites) -> dict[str, np.ndarray]:
    """Return the keys (int64) of the questions that an encoder was trained, tuned and tested on, by part.

    Questions of sites that `sites` lacks are left out: they are not in this archive.
    """
    keys, parts, _ = _split_in(uri, sites)
    return {part: keys[parts == part] for part in PARTS}


def read_development_links(uri: str, sites: Sites) -> np.ndarray:
    """Return pairs of known duplicates (int64, shape (m, 2), left < right) that an encoder was tuned on.

    Each question of a set is paired with the next one: enough to connect the set, not all of its links.
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


# From stored texts to embeddings: all code that encodes uses the reader, so that a question has the same embedding
# wherever it is made. And the encoder's fitness: whether it knows an archive.
#
# Both are measured on a sample of the archive that it was trained on, and again on each archive that it is used on. An
# encoder of another language or field makes embeddings like any other, and every threshold would be wrong.


@dataclass(frozen=True)
class Reader:
    """A network, its words, and the settings that say how it reads a stored text."""

    network: "Encoder | Bag"  # a network of torch, or dupq's own encoder without it
    vocabulary: Vocabulary
    settings: Settings

    def encode(self, table: pa.Table, rows: int | None = None) -> tuple[Encoded, int]:
        """The embeddings of rows of TEXTS, and how many texts were truncated; `rows` is the size of a batch."""
        sequences, cut = token_ids(table, self.vocabulary, self.settings)
        return self._encoded(sequences, rows or self.settings.encode.batch_size), cut

    def encode_alone(self, texts: pa.StringArray | pa.ChunkedArray) -> Encoded:
        """The embeddings of titles or bodies alone: tokenised texts, read unchanged."""
        sequences, _ = self.vocabulary.sequences(texts, self.settings.encoder.maximum_tokens)
        return self._encoded(sequences, self.settings.encode.batch_size)

    def _encoded(self, sequences: TokenIds, rows: int) -> Encoded:
        if isinstance(self.network, Bag):
            return self.network.encode(sequences)
        from dupq.encoders.encoding import encode

        return encode(self.network, sequences, rows)


_FEWEST_BODIES = 50


def fitness(reader: Reader, texts: pa.Table) -> Fitness:
    """The fitness of an encoder on rows of TEXTS, distinct in their keys."""
    sequences, _ = reader.vocabulary.sequences(texts["text"], reader.settings.encoder.maximum_tokens)
    ids = sequences.ids
    known = (ids >= FIRST_WORD) & (ids < FIRST_WORD + len(reader.vocabulary.words))
    unknown = float((~known & (ids >= UNKNOWN)).sum() / max(1, len(ids)))
    return Fitness(questions=len(texts), unknown_words=unknown, bodies_found=_bodies_found(reader, texts))


def _bodies_found(reader: Reader, texts: pa.Table) -> float | None:
    rows = zip(texts["key"].to_pylist(), texts["title"].to_pylist(), texts["text"].to_pylist(), strict=True)
    both = [(key, title, text[len(title) + 1 :]) for key, title, text in rows if title and len(text) > len(title) + 1]
    if len(both) < _FEWEST_BODIES:
        return None
    keys = np.array([key for key, _, _ in both])
    titles, bodies = (reader.encode_alone(pa.array([row[column] for row in both], pa.string())) for column in (1, 2))
    # a question is not its own neighbour, so bodies have keys of their own
    found = top_k(Embeddings(2 * keys, *titles), [Embeddings(2 * keys + 1, *bodies)], 1, reader.network.measure)
    return float((found.neighbours == found.queries + 1).sum() / len(keys))


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


def vocabulary_of(content: bytes, settings: Settings, place: str) -> Vocabulary:
    """The words in the file `place`. Raises DupqError naming it for what is no list of words."""
    try:
        return Vocabulary.from_bytes(content, settings.text)
    except (UnicodeDecodeError, DupqError) as error:
        raise DupqError(
            f"{place}: not a list of words in UTF-8, each once ({error}); train the encoder anew"
        ) from error


DESCRIBED = ("format", "settings", "measure", "pair_threshold", "fitness")  # what the fingerprint covers


@dataclass(frozen=True)
class SavedEncoder:
    """An encoder as it was trained."""

    network: "Encoder"
    vocabulary: Vocabulary
    settings: Settings
    pair_threshold: float | None  # score that tells duplicates from random pairs; None without links to choose it on
    fitness: Fitness  # on the archive that it was trained on
    metrics: dict[str, object]

    @property
    def reader(self) -> Reader:
        """The reader that makes embeddings of stored texts."""
        return Reader(self.network, self.vocabulary, self.settings)


def weights(network: "torch.nn.Module") -> bytes:
    """The weights as safetensors, names sorted: the same weights give the same bytes."""
    tensors = {name: value.detach().cpu().numpy() for name, value in sorted(network.state_dict().items())}
    return safetensors.numpy.save(tensors)


def save(uri: str, encoder: SavedEncoder, run_id: str) -> str:
    """Write an encoder to the folder `uri`, with the name of the run that made it; returns its fingerprint."""
    model, words = weights(encoder.network), encoder.vocabulary.to_bytes()
    description = {
        "format": FORMAT,
        "settings": config.to_dict(encoder.settings),
        "measure": encoder.network.measure.to_dict(),
        "pair_threshold": encoder.pair_threshold,
        "fitness": encoder.fitness,
    }
    fingerprint = _fingerprint(model, words, description)
    storage.write_bytes(storage.join(uri, "model.safetensors"), model)
    storage.write_bytes(storage.join(uri, "vocabulary.txt"), words)
    storage.write_json(
        storage.join(uri, "encoder.json"),
        {**description, "fingerprint": fingerprint, "metrics": encoder.metrics, "run_id": run_id},
    )
    return fingerprint


def load(uri: str) -> SavedEncoder:
    """Open an encoder. Raises DupqError if files are missing, damaged or do not belong together."""
    from dupq.encoders.encoding import rebuild

    uri = encoder_at(uri)
    description, settings, weights, vocabulary = _read(uri)
    try:
        network = rebuild(settings.encoder, weights, storage.join(uri, "model.safetensors"))
    except SettingError as error:
        raise DupqError(f"{storage.join(uri, 'encoder.json')}: {error}; train the encoder anew") from error
    network.set_vocabulary(vocabulary.words)
    threshold, metrics = description["pair_threshold"], description["metrics"]
    return SavedEncoder(network, vocabulary, settings, threshold, description["fitness"], metrics)


def load_reader(uri: str) -> Reader:
    """Open an encoder for encoding on the CPU alone: a weighted bag of words needs no torch for that.

    Raises DupqError as `load` does, and if torch is needed and missing.
    """
    uri = encoder_at(uri)
    kind = read_settings(uri).encoder.kind
    if kind != KIND:
        require("torch", f"{uri}, an encoder of kind {kind},")
        return load(uri).reader
    _, settings, weights, vocabulary = _read(uri)
    return Reader(Bag.of(weights, storage.join(uri, "model.safetensors")), vocabulary, settings)


def _read(uri: str) -> tuple[Description, Settings, dict[str, np.ndarray], Vocabulary]:
    """Return the description, the settings, the weights by name, and the words."""
    description = read_description(uri)
    model = storage.read_bytes(storage.join(uri, "model.safetensors"))
    words = storage.read_bytes(storage.join(uri, "vocabulary.txt"))
    described: dict[str, object] = {name: value for name, value in description.items() if name in DESCRIBED}
    if _fingerprint(model, words, described) != description["fingerprint"]:
        raise DupqError(f"{uri}: the encoder's files are damaged or from different trainings; train or copy it anew")
    settings = settings_of(description, uri)  # not read again: it may be of another encoder by now
    tensors = read_weights(model, storage.join(uri, "model.safetensors"))
    vocabulary = vocabulary_of(words, settings, storage.join(uri, "vocabulary.txt"))
    vectors = len(tensors["words.weight"])
    if vectors != len(vocabulary):
        raise DupqError(f"{uri}: {vectors} word vectors, but {len(vocabulary)} ids; train the encoder anew")
    return description, settings, tensors, vocabulary


def read_weights(content: bytes, place: str) -> dict[str, np.ndarray]:
    """What `weights` wrote, by name.

    Raises DupqError naming `place` if it is not readable, has no word vectors, or a weight is no finite number:
    training that diverged leaves such.
    """
    try:
        found = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:  # of types that numpy lacks too
        raise DupqError(f"{place}: not readable ({error}); train or copy the encoder anew") from error
    vectors = found.get("words.weight")
    if vectors is None or vectors.ndim != 2 or vectors.dtype != np.float32:
        raise DupqError(f"{place}: no table of word vectors (words.weight, float32); train the encoder anew")
    for name, value in found.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise DupqError(
                f"{place}: the weights '{name}' are not all finite; train the encoder anew, with a lower learning rate"
            )
    return found


def _fingerprint(model: bytes, words: bytes, description: dict[str, object]) -> str:
    digest = hashlib.sha256()
    for part in (model, words, storage.json_bytes(description)):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


# An encoder in few bytes, to be started from: rows of small integers instead of floats.
#
# The encoder that ships with dupq is such a file, base/encoder.npz; base/NOTICE.txt says what it was learned from.

BASE = Path(__file__).with_name("base") / "encoder.npz"
SETTINGS, WORDS, SCALES = "settings", "words", ".scales"  # of the file


class Start(NamedTuple):
    """An encoder that training goes on from."""

    settings: Settings
    words: list[str]  # in the order of their ids
    tensors: dict[str, np.ndarray]  # its weights (float32) by name


def unpack(content: bytes) -> Start:
    """Return what `pack` of benchmarks/base.py wrote, up to the rounding of its weights."""
    with np.load(io.BytesIO(content), allow_pickle=False) as kept:
        found = {name: kept[name] for name in kept.files}
    settings = config.from_dict(json.loads(found.pop(SETTINGS).tobytes()))
    words = found.pop(WORDS).tobytes().decode().split("\n")
    scales = {name: found.pop(name) for name in list(found) if name.endswith(SCALES)}
    tensors = {
        name: tensor.astype(np.float32) * scales.get(f"{name}{SCALES}", np.float32(1)) for name, tensor in found.items()
    }
    return Start(settings, words, tensors)


def base_fingerprint() -> str:
    """Names what the encoder that ships with dupq holds."""
    return hashlib.sha256(BASE.read_bytes()).hexdigest()
