"""questions → the teachers' embeddings of a sample of them; a teacher is a saved encoder.

There are many tasks of a few hundred questions each, because a teacher may take a tenth of a second for one. `prepare`
chose the questions; a task reads the partitions that may have its own.

The embeddings are also cached for later trainings of the same output, with marks, as a later run trusts no file that
has changed. A file's name is a hash of all that determines its content: the teacher, the kind of device, and the
questions with their texts.

    OUTPUT/work/teachers/FINGERPRINT-cpu/CONTENT.parquet
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from dupq import kinds, storage, system
from dupq.encoders.saved import read_description
from dupq.job.gpus import Gpus
from dupq.job.records import TAUGHT_AS, TEACHERS, kept_by
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import Counts, StepResult, finished, step, unless_finished
from dupq.job.table import Partition, Streamed, Table, zipped
from dupq.kinds import streamed
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.stages.embeddings import gpus_to_make
from dupq.stages.training.prepare import Prepared
from dupq.stages.training.words import texts_among
from dupq.system import forget, thread_map
from dupq.tables import KEYED_VECTORS, TEXTS
from dupq.text.keys import key_hashes
from dupq.training.pairs import DistillationTargets, distillation_targets
from dupq.training.start import embeddings_by

FROM_EARLIER = "teacher embeddings from an earlier training"
_QUESTIONS_PER_TASK = 500  # on average


@stage("teach", version=1)
def teach(run: Run, prepared: Prepared, settings: Settings, gpus: Gpus) -> list[Table[kinds.KeyedVector]]:
    """Make a table of each teacher's embeddings of the questions to learn from, in the order of their keys."""
    picked = prepared.picked
    fingerprints = [read_description(encoder)["fingerprint"] for encoder in settings.teacher.encoder]
    gpu_count = gpus_to_make(run, gpus, {TEACHERS: fingerprints})
    device, kind = (system.GPU, "gpu") if gpu_count else (system.CPU, "cpu")
    storage.write_json(run.path(TAUGHT_AS), {TEACHERS: fingerprints, "device": kind})  # so that the cache is kept
    uses = prepared.uses.read()
    batches = _batches(uses["key"].to_numpy()[uses["is_taught"].to_numpy()])
    spans = thread_map(storage.key_span, picked.files)
    texts = zipped([_overlapping(picked, spans, own) for own in batches])
    tables = []
    for number, (encoder, name) in enumerate(zip(settings.teacher.encoder, fingerprints, strict=True)):
        embed = run.map(f"teacher-{number}", teacher_embeddings, gpus=gpu_count)
        cache = kept_by(storage.parent(run.uri), name, kind)
        tables.append(embed(texts, zipped(batches), encoder, cache, device, settings.text))
    run.report.rows_out = sum(table.rows for table in tables)
    return tables


def _batches(keys: np.ndarray) -> list[np.ndarray]:
    """Return the questions of each task, split at hashes of keys: a new question changes its own batch only."""
    ends = np.flatnonzero(key_hashes(keys) % np.uint64(_QUESTIONS_PER_TASK) == 0)
    return np.split(keys, ends[ends > 0])


def _overlapping(
    table: Table[kinds.Text], spans: Sequence[tuple[int, int] | None], keys: np.ndarray
) -> Streamed[kinds.Text]:
    """Return the partitions whose span of keys overlaps that of `keys` (ascending)."""
    indices = [index for index, span in enumerate(spans) if span and span[0] <= keys[-1] and keys[0] <= span[1]]
    return Streamed(zipped([Partition(table, index) for index in indices]))


@step(streamed(TEXTS), makes=KEYED_VECTORS)
def teacher_embeddings(
    texts: Iterable[pa.Table], keys: np.ndarray, encoder: str, cache: str, device: str, settings: TextSettings
) -> StepResult[pa.Table]:
    """Return the teacher's embeddings of the questions `keys`; `texts` (TEXTS) include theirs."""
    table = texts_among(texts, keys)
    path = storage.join(cache, f"{_content(table)}.parquet")
    is_cached = finished(path) is not None

    def encode() -> Counts:
        vectors = embeddings_by(encoder, table, settings, device)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
        embeddings = pa.table({"key": table["key"].combine_chunks(), "vector": lists})
        storage.write_table(path, embeddings, embeddings.schema)
        return {}

    unless_finished(path, encode)
    forget(path)  # this training reads its copy only, so the cache may be deleted
    return StepResult(storage.read_table(path), {"rows_in": len(table), FROM_EARLIER: len(table) if is_cached else 0})


def _content(table: pa.Table) -> str:
    """Return a hash of the texts and of the stage's version."""
    digest = hashlib.sha256(str(teach.version).encode())
    for row in table.select(["key", "title", "text"]).to_pylist():
        digest.update(storage.json_bytes(row))
    return digest.hexdigest()[:32]


def targets_of(tables: Sequence[Table[kinds.KeyedVector]]) -> DistillationTargets:
    """Return the targets of distillation, sorted by key; `tables` has one per teacher, all of the same questions."""
    keys, embeddings = np.zeros(0, np.int64), []
    for teacher in tables:
        table = pa.concat_tables(Streamed(teacher)).combine_chunks()
        values = table["vector"].chunk(0).flatten().to_numpy(zero_copy_only=False)
        keys = table["key"].to_numpy()
        embeddings.append(values.reshape(len(table), -1).astype(np.float32))
    return distillation_targets(keys, embeddings)
