"""texts, encoder → whether the encoder knows texts like these, before anything is made with it.

    keys     the questions that it is measured on
    texts    their texts
    fitness  unknown words, and bodies that are found by their titles (encoders/fitness.py)

Memory: 8 bytes a question where they are chosen; a shard of texts.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa

from dupq.encoders.description import FITNESS_QUESTIONS, FitnessEntry, read_description
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import chosen
from dupq.job.run import Counted, Run
from dupq.job.table import Each, Table, Whole
from dupq.runs.keys import sorted_keys
from dupq.settings.dedup import CalibrationSettings
from dupq.tables import KEYS, TEXTS
from dupq.text.keys import are_among

_log = logging.getLogger(__name__)


def check_fitness(run: Run, texts: Table, encoder: str, settings: CalibrationSettings) -> FitnessEntry:
    """Record how well the encoder knows this archive. Raises DupqError if it does not, unless told to go on."""
    keys = Whole(run.map("keys", questions_to_read, Each(texts.only("key")), into=KEYS))
    some = Whole(run.map("texts", texts_of, texts, keys, into=TEXTS))
    found: FitnessEntry = run.record("fitness", fitness_on, some, encoder)
    _check(found, encoder, settings)
    return found


def questions_to_read(keys: Iterator[pa.Table]) -> pa.Table:
    """Return the questions that fitness is measured on (KEYS)."""
    return pa.table([chosen(sorted_keys(keys), FITNESS_QUESTIONS)], schema=KEYS)


def texts_of(texts: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows of TEXTS whose keys are among `keys` (ascending)."""
    return texts.filter(pa.array(are_among(keys["key"].to_numpy(), texts["key"].to_numpy())))


def fitness_on(texts: pa.Table, encoder: str) -> Counted:
    """Return the fitness of the encoder on some texts."""
    import torch

    from dupq.encoders.fitness import fitness
    from dupq.encoders.saved import load

    torch.set_num_threads(1)
    found = fitness(load(encoder).reader, texts.sort_by("key").combine_chunks())
    return Counted(vars(found), {"rows_in": len(texts), "rows_out": len(texts)})


# more unknown words than where the encoder was trained; the least share of the bodies that their titles found there
_UNKNOWN_WORDS, _BODIES_FOUND = 0.3, 0.3


def _check(here: FitnessEntry, encoder: str, settings: CalibrationSettings) -> None:
    """Warn, or stop if so configured, where the encoder knows this archive far less well than its own."""
    trained = read_description(encoder)["fitness"]
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
    said = f"{encoder}: the encoder does not know this archive: {'; '.join(faults)}"
    if settings.unfit == "stop":
        raise DupqError(
            f"{said}. Train one on this archive, or go on all the same with --set calibration.unfit=continue"
        )
    _log.warning(said)
