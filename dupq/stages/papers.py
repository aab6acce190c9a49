"""The experiments of the papers as tasks: a part of a table each, kept when it is finished.

vectors    a task for each text and way of learning word vectors
parts      a task for each row of a table and data set; rows that are the same in several tables are computed once, as
           are rows of different numbers of pairs where the data set has fewer

Memory: a task holds its data sets, word vectors and network: 1 GB for 6,000 questions with their bodies.
"""

import dataclasses
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from dupq import storage
from dupq.errors import DupqError
from dupq.evaluation.examples import ExampleSettings
from dupq.evaluation.papers.results import Result
from dupq.evaluation.papers.rows import PRESET, Part
from dupq.evaluation.papers.settings import limits_of, settings_of
from dupq.evaluation.papers.sources import Source
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.training.word_vectors import WordVectors

if TYPE_CHECKING:
    from dupq.evaluation.papers.measuring import VectorSource

_ALGORITHM = 2  # raised when parts answer differently
_WITH_VECTORS = ("wekos", "simbow")  # systems that are no encoders, and read word vectors


@dataclass(frozen=True)
class Work:
    """Where parts are kept, and the data sets by their names."""

    folder: str
    sources: Mapping[str, Source]


def measure_parts(parts: Sequence[Part], work: Work) -> Report:
    """Compute what is not there yet of `parts`."""
    wanted = {place_of(part, work): part for part in parts}
    missing = [part for place, part in wanted.items() if not storage.exists(place)]
    vectors = {_place_of_vectors(part, work): part for part in missing if _has_vectors(part)}
    run_tasks("word vectors", _learn, [(part, work) for part in vectors.values()])
    names = [f"{part.system} on {part.data}" for part in wanted.values()]
    return run_tasks("experiments", _measure, [(part, work) for part in wanted.values()], names=names)


def result_of(part: Part, work: Work) -> Result:
    """The result of a part that was computed."""
    found: Result = storage.read_json(place_of(part, work))
    return found


def place_of(part: Part, work: Work, uses_all: bool = False) -> str:
    """Where the result of a part is: named by all that it depends on.

    With `uses_all` that of the part without a limit on its pairs, which has the same result if the limit leaves none
    out.
    """
    settings = settings_of(part, work.sources[part.data])
    limits = limits_of(part)
    if uses_all:
        limits = dataclasses.replace(limits, training_pairs=ExampleSettings.training_pairs)
    made_from = {
        "algorithm": _ALGORITHM,
        "data": [asdict(work.sources[name]) | {"files": None} for name in part.needs],
        "task": part.task,
        "system": part.system if not part.system.startswith(PRESET) else "encoder",
        "settings": config.answer_settings(settings),
        "learned_from": [part.vectors, part.trained_on],
        "limits": asdict(limits),
    }
    return storage.join(work.folder, "parts", f"{_name(made_from)}.json")


def _measure(part: Part, work: Work) -> Counts:
    place = place_of(part, work)

    def make() -> Counts:
        import torch

        from dupq.evaluation.papers.measuring import learns_from_all, measure

        torch.set_num_threads(1)
        whole = place_of(part, work, uses_all=True) if learns_from_all(part, work.sources) else place

        def vectors(source: "VectorSource", settings: Settings) -> WordVectors:
            return _vectors(source, settings, work)

        try:
            found = storage.read_json(whole) if storage.exists(whole) else measure(part, work.sources, vectors)
        except DupqError as error:
            raise DupqError(f"{part.system} on {part.data}: {error}", error.exit_code) from error
        for name in {whole, place}:
            storage.write_json(name, found)
        return {"parts": 1}

    return skip_or(place, make)


def _has_vectors(part: Part) -> bool:
    return part.system.startswith(PRESET) or part.system in _WITH_VECTORS


def _learn(part: Part, work: Work) -> Counts:
    from dupq.evaluation.papers.measuring import source_of

    _own_vectors(source_of(part).text_of, settings_of(part, work.sources[part.data]), work)
    return {"vectors": 1}


def _place_of_vectors(part: Part, work: Work) -> str:
    from dupq.evaluation.papers.measuring import source_of

    return _place(source_of(part).text_of, settings_of(part, work.sources[part.data]), work)


def _vectors(source: "VectorSource", settings: Settings, work: Work) -> WordVectors:
    from dupq.evaluation.papers import word_vectors
    from dupq.evaluation.papers.data_sets import read

    found = _own_vectors(source.text_of, settings, work)
    if source.words_of == source.text_of:
        return found
    words = read(work.sources[source.words_of], settings.text).collection
    return word_vectors.lent(words, settings, found)


def _own_vectors(data: str, settings: Settings, work: Work) -> WordVectors:
    """The vectors of a data set from its own text: kept, since many parts read the same."""
    from dupq.evaluation.papers import word_vectors
    from dupq.evaluation.papers.data_sets import read

    place = _place(data, settings, work)

    def make() -> Counts:
        made = word_vectors.learned(read(work.sources[data], settings.text).collection, settings)
        stream = io.BytesIO()
        np.savez(stream, table=made.table, words=np.frombuffer("\n".join(made.words).encode(), np.uint8))
        storage.write_bytes(place, stream.getvalue())
        return {}

    skip_or(place, make)
    with np.load(io.BytesIO(storage.read_bytes(place)), allow_pickle=False) as kept:
        return WordVectors(kept["words"].tobytes().decode().split("\n"), kept["table"], {})


def _place(data: str, settings: Settings, work: Work) -> str:
    made_from = {
        "algorithm": _ALGORITHM,
        "content": work.sources[data].content,
        "text": settings.text.model_dump(),
        "word_vectors": settings.word_vectors.model_dump(),
        "seed": settings.training.seed,
    }
    return storage.join(work.folder, "vectors", f"{_name(made_from)}.npz")


def _name(made_from: Mapping[str, object]) -> str:
    return hashlib.sha256(storage.json_bytes(made_from)).hexdigest()[:20]
