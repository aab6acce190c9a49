"""The description of a saved encoder (encoder.json). Separate from the networks, so that reading it needs no torch."""

from typing import Annotated, Any, NotRequired

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import FiniteFloat, StringConstraints
from typing_extensions import TypedDict

from dupq import storage
from dupq.errors import DupqError, SettingError
from dupq.neighbours.embeddings import Kind, Measure
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.storage import checked, read_as
from dupq.text.keys import Sites

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


class FitnessEntry(TypedDict):
    """What the encoder reached on the archive that it was trained on: text_reader.py."""

    questions: int
    unknown_words: FiniteFloat
    bodies_found: FiniteFloat | None


class Description(TypedDict):
    """encoder.json."""

    format: int
    settings: dict[str, dict[str, Any]]
    measure: MeasureEntry
    pair_threshold: FiniteFloat | None
    fitness: FitnessEntry
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
