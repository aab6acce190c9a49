"""What is known of an archive's pairs, by links and by pair files, and which questions negatives are drawn from."""

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.evaluation.known_duplicates import chosen
from dupq.execution.tasks import Report
from dupq.links.known import Known, LabelledPairs, known_pairs
from dupq.links.pair_files import read_pairs
from dupq.links.split import Split
from dupq.links.tables import known_duplicates
from dupq.runs.training_layout import TrainingFiles
from dupq.settings.training import TrainingSettings
from dupq.text.keys import Sites, without
from dupq.training.pairs import NEGATIVE_POOL

_PAIRS = pa.schema([("left", pa.int64()), ("right", pa.int64()), ("duplicates", pa.bool_())])


def gather_pairs(uris: tuple[str, ...], files: TrainingFiles, sites: Sites) -> Report:
    """Read the pair files into one table that every worker can reach."""
    found = [read_pairs(storage.read_bytes(uri), sites, uri) for uri in uris]
    duplicates, others = (np.unique(np.concatenate(sides), axis=0) for sides in zip(*found, strict=True))
    pairs = np.concatenate([duplicates, others])
    labels = np.arange(len(pairs)) < len(duplicates)
    table = pa.table([pa.array(pairs[:, 0]), pa.array(pairs[:, 1]), pa.array(labels)], schema=_PAIRS)
    storage.write_table(str(files.pairs), table, _PAIRS)
    read = sum(len(side) for sides in found for side in sides)
    return Report(tasks=1, rows_in=read, rows_out=len(pairs), counts={"duplicates": len(duplicates)})


def read_known(files: TrainingFiles, sites: Sites, keys: np.ndarray, settings: TrainingSettings) -> Known:
    """The known pairs of the questions among `keys`, from links and pair files, and their split."""
    none = np.zeros((0, 2), np.int64)
    linked = none if files.links is None else known_duplicates(files.links, sites)
    if files.pairs is None:
        return known_pairs(linked, LabelledPairs(none, none), keys, settings)
    table = storage.read_table(files.pairs, _PAIRS)
    pairs = np.stack([table["left"].to_numpy(), table["right"].to_numpy()], axis=1)
    is_duplicate = table["duplicates"].to_numpy()
    return known_pairs(linked, LabelledPairs(pairs[is_duplicate], pairs[~is_duplicate]), keys, settings)


def negative_pool(keys: np.ndarray, split: Split) -> np.ndarray:
    """The questions that negatives are drawn from: some of `keys` (int64, ascending) of the training part or of none.

    Development questions are left out: pushed away from all others in training, they could no longer measure an epoch
    or choose a threshold. The pool is the same for the whole archive and for the part of it that training reads.
    """
    return chosen(without(keys, split.questions_of("development", "test")), NEGATIVE_POOL)
