"""questions → the teachers' embeddings of some of them, and of single words; a teacher is a saved encoder.

Many tasks of a few hundred questions each, as a teacher may well take a tenth of a second for one. The questions are
those that `prepare` chose and picked out; a task reads the partitions that may have its own.

What a task makes is also kept beside the trainings, for others of the same output. Its file is named by all that it is
made from: the teacher, the kind of device, the questions and their texts, and which ones are encoded together.

    OUTPUT/work/teachers/FINGERPRINT-cpu/CONTENT.parquet
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dupq import storage, system
from dupq.encoders.saved import read_description
from dupq.encoders.steps import gpus_to_make
from dupq.errors import DupqError
from dupq.job.gpus import Gpus
from dupq.job.run import Run
from dupq.job.step import Counted, Counts, finished, unless_finished
from dupq.job.table import Each, Partition, Partitions, PerTask, Table, Whole
from dupq.runs.question_tables import key_span
from dupq.runs.records import TEACHERS, TRAINING_VERSIONS, TrainingFiles
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.system import forget, side_by_side
from dupq.text.keys import key_hashes
from dupq.training.pairs import DistillationTargets, targets
from dupq.training.steps.prepare import Prepared
from dupq.training.steps.words_and_ids import texts_among
from dupq.training.word_vectors import means, spellings

if TYPE_CHECKING:
    from dupq.encoders.saved import SavedEncoder

FROM_EARLIER = "teacher embeddings from an earlier training"
_QUESTIONS_PER_TASK = 500  # on average
_ROWS = 32  # of a batch


@dataclass(frozen=True)
class _Teacher:
    """A teacher, and what it encodes with."""

    encoder: str
    kept: str  # the folder of what it encoded for any training
    device: str


def teach(run: Run, prepared: Prepared, settings: Settings, gpus: Gpus) -> list[Table]:
    """Make the embeddings that each teacher has of the questions that they read, in the order of their keys."""
    files = TrainingFiles(run.uri)
    fingerprints = [read_description(encoder)["fingerprint"] for encoder in settings.teacher.encoder]
    taken = gpus_to_make(files.taught_as, run.folder, gpus, {TEACHERS: fingerprints})
    device, kind = system.GPU if taken else system.CPU, storage.read_json(files.taught_as)["device"]
    uses = Whole(prepared.uses.only("key", "is_taught")).read()
    keys, picked = uses["key"].to_numpy()[uses["is_taught"].to_numpy()], prepared.picked
    pieces, spans = _pieces(keys), side_by_side(key_span, [picked.file(part) for part in range(picked.partitions)])
    texts = PerTask(
        tuple(Partitions(tuple(Partition(picked, part) for part in _meeting(spans, some))) for some in pieces)
    )
    found = []
    for number, (encoder, name) in enumerate(zip(settings.teacher.encoder, fingerprints, strict=True)):
        inputs = texts, PerTask(tuple(pieces)), _Teacher(encoder, files.kept_by(name, kind), device), settings.text
        found.append(run.map(f"teacher-{number}", taught_by, *inputs, into=None, gpus=taken))
    run.report.rows_out = sum(taught.rows for taught in found)
    return found


def _pieces(keys: np.ndarray) -> list[np.ndarray]:
    """Return the questions of each task, cut where a hash says so: one more or less changes its own piece alone."""
    cuts = np.flatnonzero(key_hashes(keys) % np.uint64(_QUESTIONS_PER_TASK) == 0)
    return np.split(keys, cuts[cuts > 0])


def _meeting(spans: Sequence[tuple[int, int] | None], keys: np.ndarray) -> list[int]:
    """Return the partitions that may have some of the questions `keys` (ascending)."""
    found = enumerate(spans)
    return [part for part, span in found if span is not None and span[0] <= keys[-1] and keys[0] <= span[1]]


def taught_by(texts: list[pa.Table], keys: np.ndarray, teacher: _Teacher, settings: TextSettings) -> Counted:
    """Return the teacher's embeddings of the questions `keys`, whose texts are there (TEXTS)."""
    table = texts_among(texts, keys)
    kept = storage.join(teacher.kept, f"{_content(table)}.parquet")
    is_there = finished(kept) is not None
    unless_finished(kept, lambda: _encode(teacher, table, settings, kept))
    forget(kept)  # this training reads the copy alone: the other may be removed
    return Counted(storage.read_table(kept), {"rows_in": len(table), FROM_EARLIER: len(table) if is_there else 0})


def _content(table: pa.Table) -> str:
    """Return a name for what the embeddings of some texts are made from, but for who makes them."""
    digest = hashlib.sha256(str(TRAINING_VERSIONS["teach"]).encode())
    for row in table.select(["key", "title", "text"]).to_pylist():
        digest.update(storage.json_bytes(row))
    return digest.hexdigest()[:32]


def _encode(teacher: _Teacher, table: pa.Table, settings: TextSettings, output: str) -> Counts:
    vectors = _embeddings(teacher.encoder, table, settings, teacher.device)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    found = pa.table({"key": table["key"].combine_chunks(), "vector": flat})
    storage.write_table(output, found, found.schema)
    return {}


def taught_words(words: list[str], encoder: str, written: Mapping[str, int], settings: Settings) -> np.ndarray:
    """Return the teacher's embeddings of single words (float32, one row each; zero for a word that it does not know).

    It knows words as they are written, `written` being how often texts have which: a stem gets the mean of the
    embeddings of its words that occur often enough, weighted by how often they do, or else its own.
    """
    found = spellings(words, written, settings)
    spelled = pa.array([spelling.word for spelling in found], pa.string())
    alone = pa.table({"title": pa.array([""] * len(found), pa.string()), "text": spelled})
    return means(found, _embeddings(encoder, alone, None), len(words))


def _embeddings(uri: str, table: pa.Table, settings: TextSettings | None, device: str = system.CPU) -> np.ndarray:
    """Float16 as the encoder gives them. Raises DupqError if it reads other stored texts than `settings` give."""
    import torch

    torch.set_num_threads(1)
    saved = _teacher(uri)
    text = saved.settings.text
    if saved.network.is_lexical or saved.network.kind != "cosine":
        raise DupqError(f"{uri}: a teacher's embeddings are dense vectors that are compared by cosine; choose another")
    reads, given = _stored(text), {} if settings is None else _stored(settings)
    if settings is not None and reads != given:
        shown = ", ".join(f"text.{name}={value}" for name, value in reads.items())
        raise DupqError(
            f"{uri}: the teacher reads {shown}, and these texts are {', '.join(given.values())}; set them alike"
        )
    saved.network.to(system.usable(device))
    return saved.reader.encode(table, _ROWS)[0].vectors


def _stored(settings: TextSettings) -> dict[str, str]:
    """Return the settings of stored texts; the papers' have other tokens than words."""
    return {"code": settings.code, "tokens": str(getattr(settings, "tokens", "words")), "fields": settings.fields}


@functools.lru_cache(maxsize=1)
def _teacher(uri: str) -> "SavedEncoder":
    """The teacher, opened once by each worker: every opening costs some 40 MB (measured with MiniLM)."""
    from dupq.encoders.saved import load

    return load(uri)


def targets_of(tables: Sequence[Table]) -> DistillationTargets:
    """Return the vectors that teachers have of their questions, sorted by key; each has a table."""
    keys, embeddings = [], []
    for taught in tables:
        table = pa.concat_tables(Each(taught)).combine_chunks()
        flat = table["vector"].chunk(0).flatten().to_numpy(zero_copy_only=False)
        keys.append(table["key"].to_numpy())
        embeddings.append(flat.reshape(len(table), -1).astype(np.float32))
    return targets(keys[0], embeddings)
