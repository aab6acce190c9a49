"""questions → the teacher's embeddings of a sample of them; a teacher is a saved encoder.

    texts        the texts of the questions that `prepare` chose, in batches by a hash of the key
    embeddings   a task per batch

There are many tasks of a few hundred questions each, because a teacher may take a tenth of a second for one.
"""

import numpy as np
import pyarrow as pa

from dupq import kinds, system
from dupq.job.gpus import Gpus
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import step
from dupq.job.table import Broadcast, Table
from dupq.kinds import ANY
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.stages.embeddings import gpus_to_make
from dupq.stages.training.prepare import Prepared
from dupq.stages.training.words import rows_with_uses
from dupq.tables import KEYED_VECTORS, TEXTS
from dupq.text.keys import key_hashes
from dupq.training.pairs import DistillationTargets, distillation_targets
from dupq.training.start import embeddings_by

_QUESTIONS_PER_TASK = 500  # on average


@stage("teach", version=2)
def teach(run: Run, prepared: Prepared, settings: Settings, gpus: Gpus) -> Table[kinds.KeyedVector]:
    """Make the table of the teacher's embeddings of the questions to learn from."""
    gpu_count = gpus_to_make(run, gpus, {})
    batches = -(-min(settings.teacher.questions, prepared.questions) // _QUESTIONS_PER_TASK)
    uses = Broadcast(prepared.uses.only("key", "is_taught"))
    texts = run.shuffle("texts", texts_in_batches, batches, to="batch")(prepared.picked, uses, batches)
    embed = run.map("embeddings", teacher_embeddings, gpus=gpu_count)
    device = system.GPU if gpu_count else system.CPU
    taught = embed(texts, settings.teacher.encoder, device, settings.text)
    run.report.rows_out = taught.rows
    return taught


@step(TEXTS, ANY, makes=TEXTS)
def texts_in_batches(texts: pa.Table, uses: pa.Table, batches: int) -> pa.Table:
    """Return the texts of the questions to learn from, with the number of the batch of each."""
    taught = rows_with_uses(texts, uses)
    hashes = key_hashes(taught["key"].to_numpy())
    return taught.append_column("batch", pa.array((hashes % np.uint64(batches)).astype(np.int64)))


@step(TEXTS, makes=KEYED_VECTORS)
def teacher_embeddings(texts: pa.Table, encoder: str, device: str, settings: TextSettings) -> pa.Table:
    """Return the teacher's embeddings of a batch, in the order of its keys."""
    texts = texts.sort_by("key").combine_chunks()
    vectors = embeddings_by(encoder, texts, settings, device)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return pa.table({"key": texts["key"], "vector": lists})


def targets_of(taught: Table[kinds.KeyedVector]) -> DistillationTargets:
    """Return the targets of distillation, sorted by key."""
    table = Broadcast(taught).read().combine_chunks()
    values = table["vector"].chunk(0).flatten().to_numpy(zero_copy_only=False)
    keys, embeddings = table["key"].to_numpy(), values.reshape(len(table), -1).astype(np.float32)
    order = np.argsort(keys)
    return distillation_targets(keys[order], embeddings[order])
