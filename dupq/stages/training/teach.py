"""questions → the teachers' embeddings of a sample of them, and of single words; a teacher is a saved encoder.

There are many tasks of a few hundred questions each, because a teacher may take a tenth of a second for one. `prepare`
chose the questions; a task reads the partitions that may have its own.

The embeddings are also cached for later trainings of the same output. A file's name is a hash of all that determines
its content: the teacher, the kind of device, and the questions with their texts.

    OUTPUT/work/teachers/FINGERPRINT-cpu/CONTENT.parquet
"""

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dupq import storage, system
from dupq.encoders.saved import load, read_description
from dupq.errors import DupqError
from dupq.job.gpus import Gpus
from dupq.job.records import TEACHERS, TRAINING_VERSIONS, TrainingFiles
from dupq.job.run import Run
from dupq.job.step import Counted, Counts, finished, unless_finished
from dupq.job.table import Each, Partition, Partitions, PerTask, Table, Whole
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.stages.embeddings import gpus_to_make
from dupq.stages.training.prepare import Prepared
from dupq.stages.training.words import texts_among
from dupq.system import forget, side_by_side
from dupq.text.keys import key_hashes
from dupq.training.pairs import DistillationTargets, distillation_targets
from dupq.training.word_vectors import mean_vectors, spellings

FROM_EARLIER = "teacher embeddings from an earlier training"
_QUESTIONS_PER_TASK = 500  # on average
_ROWS = 32  # of a batch
_teacher = functools.lru_cache(maxsize=1)(load)  # once per worker: each opening costs some 40 MB (with MiniLM)


def teach(run: Run, prepared: Prepared, settings: Settings, gpus: Gpus) -> list[Table]:
    """Make a table of each teacher's embeddings of the questions to learn from, in the order of their keys."""
    files = TrainingFiles(run.uri)
    fingerprints = [read_description(encoder)["fingerprint"] for encoder in settings.teacher.encoder]
    gpu_count = 0 if run.is_done else gpus_to_make(files.taught_as, run.folder, gpus, {TEACHERS: fingerprints})
    device, kind = system.GPU if gpu_count else system.CPU, storage.read_json(files.taught_as)["device"]
    uses = Whole(prepared.uses.only("key", "is_taught")).read()
    batches, picked = _batches(uses["key"].to_numpy()[uses["is_taught"].to_numpy()]), prepared.picked
    spans = side_by_side(storage.key_span, [picked.file(index) for index in range(picked.partitions)])
    texts = PerTask(tuple(_overlapping(picked, spans, own) for own in batches))
    tables = []
    for number, (encoder, name) in enumerate(zip(settings.teacher.encoder, fingerprints, strict=True)):
        inputs = texts, PerTask(tuple(batches)), encoder, files.kept_by(name, kind), device, settings.text
        tables.append(run.map(f"teacher-{number}", teacher_embeddings, *inputs, into=None, gpus=gpu_count))
    run.report.rows_out = sum(table.rows for table in tables)
    return tables


def _batches(keys: np.ndarray) -> list[np.ndarray]:
    """Return the questions of each task, split at hashes of keys: a new question changes its own batch only."""
    ends = np.flatnonzero(key_hashes(keys) % np.uint64(_QUESTIONS_PER_TASK) == 0)
    return np.split(keys, ends[ends > 0])


def _overlapping(table: Table, spans: Sequence[tuple[int, int] | None], keys: np.ndarray) -> Partitions:
    """Return the partitions whose span of keys overlaps that of `keys` (ascending)."""
    indices = [index for index, span in enumerate(spans) if span and span[0] <= keys[-1] and keys[0] <= span[1]]
    return Partitions(tuple(Partition(table, index) for index in indices))


def teacher_embeddings(
    texts: Iterable[pa.Table], keys: np.ndarray, encoder: str, cache: str, device: str, settings: TextSettings
) -> Counted:
    """Return the teacher's embeddings of the questions `keys`; `texts` (TEXTS) include theirs."""
    table = texts_among(texts, keys)
    path = storage.join(cache, f"{_content(table)}.parquet")
    is_cached = finished(path) is not None

    def encode() -> Counts:
        vectors = _embeddings(encoder, table, settings, device)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
        embeddings = pa.table({"key": table["key"].combine_chunks(), "vector": lists})
        storage.write_table(path, embeddings, embeddings.schema)
        return {}

    unless_finished(path, encode)
    forget(path)  # this training reads its copy only, so the cache may be deleted
    return Counted(storage.read_table(path), {"rows_in": len(table), FROM_EARLIER: len(table) if is_cached else 0})


def _content(table: pa.Table) -> str:
    """Return a hash of the texts and of the step's version."""
    digest = hashlib.sha256(str(TRAINING_VERSIONS["teach"]).encode())
    for row in table.select(["key", "title", "text"]).to_pylist():
        digest.update(storage.json_bytes(row))
    return digest.hexdigest()[:32]


def teacher_word_vectors(words: list[str], encoder: str, written: Mapping[str, int], settings: Settings) -> np.ndarray:
    """Return the teacher's embeddings of single words (float32, one row each); zero for a word that it does not know.

    A teacher knows written words, whose counts in the texts are `written`. A stem gets the mean of the embeddings of
    its frequent spellings, weighted by count, or else its own.
    """
    spelt = spellings(words, written, settings)
    texts = pa.array([spelling.word for spelling in spelt], pa.string())
    table = pa.table({"title": pa.array([""] * len(spelt), pa.string()), "text": texts})
    return mean_vectors(spelt, _embeddings(encoder, table, None), len(words))


def _embeddings(uri: str, table: pa.Table, settings: TextSettings | None, device: str = system.CPU) -> np.ndarray:
    """Return the encoder's vectors (float16). Raises DupqError if it reads other texts than `settings` make."""
    import torch

    torch.set_num_threads(1)
    saved = _teacher(uri)
    text = saved.settings.text
    if saved.network.is_lexical or saved.network.kind != "cosine":
        raise DupqError(f"{uri}: a teacher's embeddings are dense vectors that are compared by cosine; choose another")
    expected = _text_settings(text)
    if settings is not None and _text_settings(settings) != expected:
        shown = ", ".join(f"text.{name}={value}" for name, value in expected.items())
        actual = ", ".join(_text_settings(settings).values())
        raise DupqError(f"{uri}: the teacher reads {shown}, and these texts are {actual}; set them alike")
    saved.network.to(system.usable(device))
    return saved.encode(table, _ROWS).vectors


def _text_settings(settings: TextSettings) -> dict[str, str]:
    """Return the settings that stored texts depend on; only the papers set `tokens`."""
    return {"code": settings.code, "tokens": str(getattr(settings, "tokens", "words")), "fields": settings.fields}


def targets_of(tables: Sequence[Table]) -> DistillationTargets:
    """Return the targets of distillation, sorted by key; `tables` has one per teacher, all of the same questions."""
    keys, embeddings = np.zeros(0, np.int64), []
    for teacher in tables:
        table = pa.concat_tables(Each(teacher)).combine_chunks()
        values = table["vector"].chunk(0).flatten().to_numpy(zero_copy_only=False)
        keys = table["key"].to_numpy()
        embeddings.append(values.reshape(len(table), -1).astype(np.float32))
    return distillation_targets(keys, embeddings)
