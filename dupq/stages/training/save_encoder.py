"""The last training stage: the network at its best epoch → the saved encoder, with measures on its own archive.

One task. It holds the embeddings of a sample: to measure the fitness that later archives are compared with, and where
there are known duplicates, the score that best separates development pairs from random ones.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.encoders.description import FILES, FITNESS_QUESTIONS, PARTS, SPLIT, read_description
from dupq.evaluation.known_duplicates import chosen
from dupq.evaluation.measures import best_accuracy
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts
from dupq.links.known import Known
from dupq.links.split import Split
from dupq.report import learning_curve
from dupq.runs.keys import all_keys
from dupq.runs.training_layout import TrainingFiles
from dupq.settings.config import Settings
from dupq.stages.training.development import FEWEST_QUESTIONS, FEWEST_TITLES, scored_pairs
from dupq.stages.training.known_pairs import read_known
from dupq.tables import TEXTS
from dupq.text.keys import Sites, are_among

if TYPE_CHECKING:
    from dupq.encoders.reader import Reader

PICTURE = "learning_curve.svg"


def save_encoder(files: TrainingFiles, sites: Sites, settings: Settings, language: str, run_id: str) -> Report:
    """Measure the encoder on a sample of its archive, and save it; `language` tells readers how that is known."""
    return run_tasks("save", _save, [(files, sites.names, settings, language, run_id)])


def _save(files: TrainingFiles, site_names: list[str], settings: Settings, language: str, run_id: str) -> Counts:
    import torch

    from dupq.encoders.build import rebuild
    from dupq.encoders.fitness import fitness
    from dupq.encoders.reader import Reader
    from dupq.encoders.saved import SavedEncoder, read_weights, save
    from dupq.text.vocabulary import Vocabulary
    from dupq.training.checkpoints import Progress, measured_by

    torch.set_num_threads(1)
    sites = Sites(site_names)
    vocabulary = Vocabulary.from_bytes(
        storage.read_bytes(files.vocabulary), settings.text, settings.word_vectors.hashed
    )
    network = rebuild(settings.encoder, read_weights(storage.read_bytes(files.weights), files.weights), files.weights)
    network.set_vocabulary(vocabulary.words)
    reader = Reader(network, vocabulary, settings)
    keys = all_keys(files.texts)
    known = read_known(files, sites, keys, settings.training)
    found = fitness(reader, _texts(files, chosen(keys, FITNESS_QUESTIONS)))
    threshold, accuracy = _pair_threshold(files, reader, keys, known)
    curve = storage.read_json(files.curve)
    metrics = {
        "archive_questions": len(keys),
        "language": language,
        "known_duplicates": {part: len(known.split.questions_of(part)) for part in PARTS},  # questions
        "development_queries": len(known.split.questions_of("development")),
        "development_pair_accuracy": accuracy,
        "best_epoch": Progress(curve).best,
        "best_epoch_by": measured_by(curve[-1]),
        "not_measured": not_measured(known.split, measured_by(curve[-1])),
        "learning_curve": curve,
    }
    _write_split(files.encoder, known.split, known.wrong, sites)
    save(files.encoder, SavedEncoder(network, vocabulary, settings, threshold, found, metrics), run_id)
    picture = learning_curve.picture(curve)
    storage.write_bytes(storage.join(files.encoder, PICTURE), picture.encode())
    return {"rows_in": len(keys), "rows_out": 1}


def not_measured(split: Split, best_epoch_by: str | None) -> dict[str, str]:
    """Why what is null of an encoder's measures could not be measured, by the name of the measure."""
    found: dict[str, str] = {}
    counts = {part: len(split.questions_of(part)) for part in PARTS}
    if not counts["development"]:
        reason = "no question with a known duplicate to choose a threshold on"
        found |= dict.fromkeys(("pair_threshold", "development_pair_accuracy"), reason)
    if counts["development"] < FEWEST_QUESTIONS:
        found["development_map"] = (
            f"{counts['development']} development questions with known duplicates; {FEWEST_QUESTIONS} are needed"
        )
    if best_epoch_by is None:
        found["best_epoch_by"] = (
            f"the last epoch is kept: neither {FEWEST_QUESTIONS} development questions nor {FEWEST_TITLES} titles with "
            "bodies to set apart"
        )
    if not counts["test"]:
        found["test"] = "no known duplicates were kept for tests: what the encoder finds is not known"
    return found


def _texts(files: TrainingFiles, keys: np.ndarray) -> pa.Table:
    table = storage.read_table(files.measured, TEXTS)
    return table.filter(pa.array(are_among(keys, table["key"].to_numpy()))).combine_chunks()


def _pair_threshold(
    files: TrainingFiles, reader: "Reader", keys: np.ndarray, known: Known
) -> tuple[float | None, float | None]:
    """The score that best tells development links from random pairs, and how well; None where there are no links."""
    from dupq.evaluation.rankers import EncoderRanker
    from dupq.neighbours.embeddings import Embeddings

    training = reader.settings.training
    links = known.split.links_of("development", known.links)
    pool = np.union1d(chosen(keys, training.development_pool), known.split.questions_of("development"))
    if not len(links) or len(pool) < 3:
        return None, None
    table = _texts(files, pool)
    embedded = Embeddings(table["key"].to_numpy(), *reader.encode(table)[0])
    ranker = EncoderRanker([embedded], reader.network.measure)
    return best_accuracy(*scored_pairs(ranker, pool, known, training))


def publish(files: TrainingFiles, output: str) -> str:
    """Copy the saved encoder to a folder of its own in `output`, and point latest.json there; returns the folder.

    A folder is named by its encoder's fingerprint and its training, and is never changed: whoever reads an older
    encoder goes on reading it. What is damaged in it is written again.
    """
    description = read_description(files.encoder)
    name = f"{description['fingerprint'][:16]}-{description['run_id'][:8]}"
    folder = storage.join(output, name)
    run_tasks("publish", _publish, [(files.encoder, folder)])
    storage.write_json(storage.join(output, "latest.json"), {"encoder": name})
    return folder


def _publish(source: str, folder: str) -> Counts:
    for file in (*reversed(FILES), PICTURE):  # the description, which readers look for first, after what it describes
        content, place = storage.read_bytes(storage.join(source, file)), storage.join(folder, file)
        if not storage.exists(place) or storage.read_bytes(place) != content:
            storage.write_bytes(place, content)
    return {}


def _write_split(output: str, split: Split, wrong: np.ndarray, sites: Sites) -> None:
    """Write which part each question is in: `train` if it is only in pairs labelled as no duplicates (`wrong`)."""
    alone = np.setdiff1d(wrong, split.questions)
    numbers = np.unique(np.concatenate([split.sets, alone]), return_inverse=True)[1]
    columns = [
        *sites.columns(np.concatenate([split.questions, alone])),
        pa.array(numbers, pa.int64()),
        pa.array([*split.parts.tolist(), *["train"] * len(alone)], pa.string()),
    ]
    storage.write_table(storage.join(output, "split.parquet"), pa.table(columns, schema=SPLIT), SPLIT)
