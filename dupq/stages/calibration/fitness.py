"""texts, encoder → whether the encoder knows texts like these, before anything is made with it.

keys     one task          the questions that it is measured on
texts    a task a shard    their texts
fitness  one task          unknown words, and bodies that are found by their titles (encoders/fitness.py)
"""

import logging

import pyarrow as pa

from dupq import storage
from dupq.encoders.description import FITNESS_QUESTIONS, read_description
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import chosen
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs.keys import all_keys, read_keys, write_keys
from dupq.runs.layout import CalibrationFiles
from dupq.settings.dedup import CalibrationSettings
from dupq.tables import TEXTS
from dupq.text.keys import are_among

_log = logging.getLogger(__name__)


def measure_fitness(files: CalibrationFiles, settings: CalibrationSettings) -> Report:
    """Write how well the encoder knows this archive. Raises DupqError if it does not, unless told to go on."""
    names = [file.relative for file in storage.list_files(files.texts, ".parquet")]
    run_tasks("fitness", _fitness_keys, [(files,)])
    run_tasks("fitness", _fitness_texts, [(files, name) for name in names])
    report = run_tasks("fitness", _fitness, [(files, names)])
    _check_fitness(files, settings)
    return report


def _fitness_keys(files: CalibrationFiles) -> Counts:
    """Choose the questions that fitness is measured on. Memory: 8 bytes a question."""

    def make() -> Counts:
        write_keys(files.fitness_keys, chosen(all_keys(files.texts), FITNESS_QUESTIONS))
        return {}

    return skip_or(files.fitness_keys, make)


def _fitness_texts(files: CalibrationFiles, file: str) -> Counts:
    output = files.fitness_texts(file)

    def make() -> Counts:
        table = storage.read_table(storage.join(files.texts, file), TEXTS)
        table = table.filter(pa.array(are_among(read_keys(files.fitness_keys), table["key"].to_numpy())))
        storage.write_table(output, table, TEXTS)
        return {}

    return skip_or(output, make)


def _fitness(files: CalibrationFiles, names: list[str]) -> Counts:
    def make() -> Counts:
        import torch

        from dupq.encoders.fitness import fitness
        from dupq.encoders.saved import load

        torch.set_num_threads(1)
        reader = load(files.encoder).reader
        table = pa.concat_tables([storage.read_table(files.fitness_texts(name), TEXTS) for name in names])
        storage.write_json(files.fitness, vars(fitness(reader, table.sort_by("key").combine_chunks())))
        return {"rows_in": len(table), "rows_out": len(table)}

    return skip_or(files.fitness, make)


# more unknown words than where the encoder was trained; the least share of the bodies that their titles found there
_UNKNOWN_WORDS, _BODIES_FOUND = 0.3, 0.3


def _check_fitness(files: CalibrationFiles, settings: CalibrationSettings) -> None:
    """Warn, or stop if so configured, where the encoder knows this archive far less well than its own."""
    here, trained = storage.read_json(files.fitness), read_description(files.encoder)["fitness"]
    faults = []
    if here["unknown_words"] > max(2 * trained["unknown_words"], trained["unknown_words"] + _UNKNOWN_WORDS):
        faults.append(
            f"{here['unknown_words']:.0%} of the words are unknown to it ({trained['unknown_words']:.0%} where it was "
            "trained)"
        )
    found, found_then = here["bodies_found"], trained["bodies_found"]
    if found is not None and found_then is not None and found < _BODIES_FOUND * found_then:
        faults.append(f"it finds {found:.0%} of the bodies by their titles ({found_then:.0%} where it was trained)")
    if not faults:
        return
    said = f"{files.encoder}: the encoder does not know this archive: {'; '.join(faults)}"
    if settings.unfit == "stop":
        raise DupqError(
            f"{said}. Train one on this archive, or go on all the same with --set calibration.unfit=continue"
        )
    _log.warning(said)
