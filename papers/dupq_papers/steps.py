"""The experiments of the papers as tasks: a part of a table each, kept when it is finished.

data sets  a task each counts the pairs that there are to learn from
vectors    a task for each text and way of learning word vectors, of the encoders
parts      a task for each row of a table and data set; rows that are the same in several tables are computed once, as
           are rows of different numbers of pairs where the data set has fewer
examples   a task each writes the pairs and queries of a data set, beside the pages

Memory: a task holds its data sets, word vectors and network, 1 GB for 6,000 questions with their bodies; one of an SVM
3 GB.
"""

import dataclasses
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from dupq import storage
from dupq.errors import DupqError
from dupq.job.step import Counts, finished, unless_finished
from dupq.job.tasks import run_tasks
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.stages.texts import make_distinct_texts
from dupq.training.start import base_fingerprint
from dupq.training.word_vectors import WordVectors
from dupq_papers.data.example_files import write_experiment
from dupq_papers.experiments import word_vectors
from dupq_papers.experiments.data_sets import parts_of, read, training_pairs
from dupq_papers.experiments.results import Result
from dupq_papers.experiments.rows import PRESET, Part, VectorSource, source_of
from dupq_papers.experiments.settings import limits_for, limits_of, searched_text, settings_of
from dupq_papers.experiments.sources import Source

# what these share with `prepare` and `fit` of dupq's training is as it was with those numbers
VERSIONS = {"paper_parts": 2, "texts": make_distinct_texts.version, "prepare": 1, "fit": 3}


@dataclass(frozen=True)
class Work:
    """Where parts are kept, the data sets by their names, and how many pairs of a label each has to learn from."""

    folder: str
    sources: Mapping[str, Source]
    training_pairs: Mapping[str, int]


def opened(folder: str, sources: Sequence[Source]) -> Work:
    """The work below `folder`. Raises DupqError for a data set that is damaged or has too few pairs."""
    places = {source.name: storage.join(folder, "data_sets", f"{_name(_content(source))}.json") for source in sources}
    missing = [source for source in sources if finished(places[source.name]) is None]
    names = [source.name for source in missing]
    run_tasks("data sets", _count, [(source, places[source.name]) for source in missing], names=names)
    counted = {name: storage.read_json(place)["training_pairs"] for name, place in places.items()}
    return Work(folder, {source.name: source for source in sources}, counted)


def measure_parts(parts: Sequence[Part], work: Work) -> None:
    """Compute what is not there yet of `parts`."""
    wanted = {place_of(part, work): part for part in parts}
    missing = [part for place, part in wanted.items() if finished(place) is None]
    encoders = [part for part in missing if part.system.startswith(PRESET)]
    vectors = {_place(source_of(part).text_of, _settings(part, work), work): part for part in encoders}
    unlearned = [part for place, part in vectors.items() if finished(place) is None]
    run_tasks("word vectors", _learn, [(part, work) for part in unlearned], names=_names(unlearned))
    run_tasks("experiments", _measure, [(part, work) for part in missing], names=_names(missing))


def save_examples(folder: str, work: Work, is_quick: bool) -> None:
    """Write the pairs and queries of each data set into a folder of its name; see `write_experiment`."""
    calls = [(source, storage.join(folder, name), is_quick) for name, source in work.sources.items()]
    run_tasks("examples", _save, calls, names=list(work.sources))


def result_of(part: Part, work: Work) -> Result:
    """The result of a part that was computed."""
    found: Result = storage.read_json(place_of(part, work))
    return found


def place_of(part: Part, work: Work) -> str:
    """Where the result of a part is: named by all that it depends on. A limit is no more than the pairs there are."""
    limits = limits_of(part)
    most, settings = min(limits.training_pairs, work.training_pairs[part.learned_from]), _settings(part, work)
    made_from = {
        "versions": VERSIONS,
        "data": [_content(work.sources[name]) for name in part.needs],
        "task": part.task,
        "system": part.system if not part.system.startswith(PRESET) else "encoder",
        "settings": config.answer_settings(settings),
        "learned_from": [part.vectors, part.trained_on],
        "limits": asdict(dataclasses.replace(limits, training_pairs=most)),
    }
    start = _start(settings) if part.system.startswith(PRESET) else {}
    return storage.join(work.folder, "parts", f"{_name(made_from | start)}.json")


def _start(settings: Settings) -> dict[str, object]:
    """Return the encoder that training goes on from, if it does."""
    return {"start": base_fingerprint()} if settings.word_vectors.goes_on else {}


def _names(parts: Iterable[Part]) -> list[str]:
    return [f"{part.system} on {part.data}" for part in parts]


def _settings(part: Part, work: Work) -> Settings:
    return settings_of(part, work.sources[part.data])


def _count(source: Source, place: str) -> Counts:
    def make() -> Counts:
        try:
            storage.write_json(place, {"training_pairs": training_pairs(source)})
        except DupqError as error:
            raise DupqError(f"{source.name}: {error}", error.exit_code) from error
        return {"data sets": 1}

    return unless_finished(place, make)


def _save(source: Source, folder: str, is_quick: bool) -> Counts:
    write_experiment(folder, parts_of(read(source, searched_text(source)), limits_for(is_quick)))
    return {"data sets": 1}


def _measure(part: Part, work: Work) -> Counts:
    place = place_of(part, work)

    def make() -> Counts:
        import torch

        from dupq_papers.experiments.measuring import measure

        torch.set_num_threads(1)
        try:
            found = measure(part, work.sources, lambda source, settings: _vectors(source, settings, work))
        except DupqError as error:
            raise DupqError(f"{part.system} on {part.data}: {error}", error.exit_code) from error
        storage.write_json(place, found)
        return {"parts": 1}

    return unless_finished(place, make)


def _learn(part: Part, work: Work) -> Counts:
    _own_vectors(source_of(part).text_of, _settings(part, work), work)
    return {"vectors": 1}


def _vectors(source: VectorSource, settings: Settings, work: Work) -> WordVectors:
    found = _own_vectors(source.text_of, settings, work)
    if source.words_of == source.text_of:
        return found
    words = read(work.sources[source.words_of], settings.text).collection
    return word_vectors.lent(words, settings, found)


def _own_vectors(data: str, settings: Settings, work: Work) -> WordVectors:
    """The vectors of a data set from its own text: kept, since many parts read the same."""
    place = _place(data, settings, work)

    def make() -> Counts:
        made = word_vectors.learned(read(work.sources[data], settings.text).collection, settings)
        stream = io.BytesIO()
        words, caps = "\n".join(made.words).encode(), storage.json_bytes(made.caps)
        np.savez(stream, table=made.table, words=np.frombuffer(words, np.uint8), caps=np.frombuffer(caps, np.uint8))
        storage.write_bytes(place, stream.getvalue())
        return {}

    unless_finished(place, make)
    with np.load(io.BytesIO(storage.read_bytes(place)), allow_pickle=False) as kept:
        words, caps = (kept[name].tobytes().decode() for name in ("words", "caps"))
        return WordVectors(words.split("\n"), kept["table"], json.loads(caps))


def _place(data: str, settings: Settings, work: Work) -> str:
    made_from = {
        "versions": VERSIONS,
        "content": work.sources[data].content,
        "text": settings.text.model_dump(),
        "word_vectors": settings.word_vectors.model_dump(),
        "seed": settings.training.seed,
    }
    return storage.join(work.folder, "vectors", f"{_name(made_from | _start(settings))}.npz")


def _content(source: Source) -> dict[str, object]:
    return asdict(source) | {"files": None}


def _name(made_from: Mapping[str, object]) -> str:
    return hashlib.sha256(storage.json_bytes(made_from)).hexdigest()[:20]
