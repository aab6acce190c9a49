"""scored pairs, questions → the pairs with probabilities that a teacher's cosines have moved.

    wanted       the questions of pairs above a floor, also of calibration pairs
    questions    each of them once, with its partition; then with its shard: asked
    vectors      the teacher's vectors, new or from the earlier run
    vectors_for  the vectors that the pairs of a partition need
    model        how much a cosine says in this archive (dupq/clusters/calibration.py)
    scored       the pairs again, with cosine and probability

A shard is read by several tasks, so that a small archive has work for all workers. On CPUs a vector depends on its text
and the model alone: the same bytes for any workers, shards and earlier run. On GPUs its last bits depend on the batch:
the same inputs give the same bytes, but vectors from the earlier run were made in other batches.

Memory: the texts of a task's questions, 2 kB each, and their vectors, beside the model and its libraries (with MiniLM
0.9 GB, which the process keeps); later the vectors of the questions of a partition's likely pairs.
"""

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage, system
from dupq.clusters.calibration import Labelled, TeacherModel, fit_teacher, read_prior
from dupq.clusters.steps.decide import questions_of
from dupq.clusters.steps.make_clusters import rows_of
from dupq.encoders.sentence_models import FLOOR, Teacher, cosines_of, teacher_texts, teacher_vectors
from dupq.encoders.steps import gpus_to_make
from dupq.job.earlier import LEFT_OUT, Earlier, earlier_vectors, find_contents
from dupq.job.gpus import Gpus
from dupq.job.run import Run
from dupq.job.step import Counted
from dupq.job.table import Each, Shards, Table, read_all, subdivided
from dupq.runs.records import TEACHER_VERSIONS, RunFiles
from dupq.tables import CONTENT_HASHES, COSINES, KEYS, QUESTIONS, SCORED, taught
from dupq.text.keys import ID_BITS, MAXIMUM_ID, Sites, are_among, distinct, indices_among, pairs_in, sorted_keys

COLUMNS = ("question_id", "title", "body_html")  # of questions
_TEXTS = pa.schema([CONTENT_HASHES.field("key"), *(QUESTIONS.field(name) for name in COLUMNS[1:])])
_QUESTIONS = 250  # of a task if there are few in all: some seconds on a CPU
_TASKS = 64  # for all shards together, or one per shard if there are more


@dataclass(frozen=True)
class Reading:
    """How the teacher's vectors are made."""

    teacher: Teacher
    code: str  # the setting text.code
    sites: list[str]
    device: str = system.CPU
    earlier: Earlier | None = None


def ask_teacher(
    run: Run,
    pairs: tuple[Table, Table],
    questions: Shards,
    contents: Table,
    reading: Reading,
    gpus: Gpus,
    prior: str = "",
    since: RunFiles | None = None,
) -> Table:
    """Return the scored pairs, with new probabilities where the teacher has read them: above the floor.

    `pairs` are the scored ones (SCORED) and those of calibration (CALIBRATION_PAIRS), `contents` the hashes of all
    questions (CONTENT_HASHES). Vectors of questions that are unchanged since the run `since` are taken from there.
    `prior` is the URI of another prior than dupq's, or empty.
    """
    (scored, sampled), teacher, sites = pairs, reading.teacher, reading.sites
    count, columns = scored.partitions, scored.only("left", "right", "probability")
    wanted = run.shuffle("wanted", likely_questions, columns, into=KEYS, by="key", partitions=count)
    sources = sampled, sites
    of_sample = run.shuffle("wanted_by_sample", sampled_questions, *sources, into=KEYS, by="key", partitions=count)
    every = run.map("questions", each_once, wanted, of_sample, into=KEYS)
    asked = run.map("asked", hashes_of, contents, Each(every), into=CONTENT_HASHES)

    made_by: dict[str, object] = {"model": teacher.fingerprint, "code": reading.code}
    made_by |= {"algorithm": TEACHER_VERSIONS["teacher"], "torch": importlib.metadata.version("torch")}
    made_as = storage.join(run.folder, "made_as.json")
    taken = gpus_to_make(made_as, storage.join(run.folder, "vectors"), gpus, made_by)
    earlier = earlier_vectors(since, storage.read_json(made_as))
    reading = replace(reading, device=system.GPU if taken else system.CPU, earlier=earlier)

    tasks_per_shard = -(-min(_TASKS, 1 + every.rows // _QUESTIONS) // questions.partitions)
    repeated = replace(questions, shards=tuple(shard for shard in questions.shards for _ in range(tasks_per_shard)))
    rows, hashes = taught(teacher.dimensions), run.table("contents", CONTENT_HASHES)
    inputs = subdivided(asked, tasks_per_shard), repeated, reading
    vectors = run.shuffle(
        "vectors", vectors_for, *inputs, into=rows, by="key", partitions=count, second=hashes, gpus=taken
    )

    cosines, own = run.table("cosines", COSINES), run.look_up("vectors_for_sample", vectors, of_sample)
    model = run.record("model", teacher_model, sampled, own, sites, prior, second=cosines)
    moved = run.map("scored", moved_by, scored, run.look_up("vectors_for", vectors, wanted), model, into=SCORED)
    run.report.rows_in, run.report.rows_out = every.rows, vectors.rows
    return moved


def likely_questions(pairs: pa.Table) -> pa.Table:
    """Return the questions of pairs above the floor (KEYS)."""
    return questions_of(pairs.filter(pc.greater_equal(pairs["probability"], pa.scalar(FLOOR, pa.float32()))))


def sampled_questions(pairs: pa.Table, sites: list[str]) -> pa.Table:
    """Return the questions of rows of CALIBRATION_PAIRS above the floor (KEYS)."""
    likely = pairs.filter(pc.greater_equal(pairs["probability"], FLOOR))
    return pa.table([distinct(Sites(sites).pack_pairs(likely, "pairs"))], schema=KEYS)


def each_once(*questions: pa.Table) -> pa.Table:
    """Return the questions of all tables, each once (KEYS)."""
    return pa.table([distinct(sorted_keys(questions))], schema=KEYS)


def hashes_of(contents: pa.Table, questions: Iterator[pa.Table]) -> pa.Table:
    """Return the rows of `contents` (CONTENT_HASHES) of the questions in all tables, by key."""
    keys = contents["key"].to_numpy()
    is_read = np.zeros(len(keys), bool)
    for table in questions:
        is_read |= are_among(table["key"].to_numpy(), keys)
    return contents.filter(pa.array(is_read)).sort_by("key")


def vectors_for(contents: pa.Table, questions: Iterator[pa.RecordBatch], reading: Reading) -> Counted:
    """Return the teacher's vectors of some questions of a shard (`taught`); the second table is `contents`.

    `contents` are the questions' hashes (CONTENT_HASHES).
    """
    keys, ids = contents["key"].to_numpy(), contents["key"].to_numpy() & MAXIMUM_ID
    hashes = np.stack([contents[half].to_numpy() for half in ("high", "low")], axis=1)
    site = reading.sites[keys[0] >> ID_BITS] if len(keys) else ""
    names, earlier, left_out = find_contents(reading.earlier, site, ids)
    is_same, dimensions = earlier.are_same(ids, hashes), reading.teacher.dimensions
    vectors = np.zeros((len(ids), dimensions), np.float16)
    folder = reading.earlier.embeddings if reading.earlier is not None else ""
    for name in names:
        file = storage.join(folder, f"{name.removesuffix('.parquet')}.arrow")
        earlier_keys, earlier_vectors = _columns(pa.Table.from_batches(read_all(file)))
        rows, are_here = indices_among(earlier_keys & MAXIMUM_ID, ids)  # all of one site
        vectors[are_here & is_same] = earlier_vectors[rows[are_here & is_same]]
    if not is_same.all():
        import torch

        torch.set_num_threads(1)  # a task has one CPU
        rows = rows_of(questions, keys[~is_same], _TEXTS).sort_by("key")
        texts = teacher_texts(rows["title"].to_pylist(), rows["body_html"].to_pylist(), reading.code)
        vectors[~is_same] = teacher_vectors(reading.teacher, texts, reading.device)
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), dimensions)
    counts = {"rows_in": len(keys), "vectors as in the earlier run": int(is_same.sum()), LEFT_OUT: left_out}
    return Counted(pa.table([pa.array(keys), flat], schema=taught(dimensions)), counts, contents)


def _columns(vectors: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys, ascending, and vectors (float16, a row each) of rows of `taught`."""
    table = vectors.sort_by("key").combine_chunks()
    flat = pc.list_flatten(table["vector"]).to_numpy()
    return table["key"].to_numpy(), flat.reshape(len(table), table.schema.field("vector").type.list_size)


def cosines_in(vectors: pa.Table, pairs: np.ndarray) -> np.ndarray:
    """Return the teacher's cosine (float32) of each pair of keys; NaN where a question has no vector."""
    return cosines_of(*_columns(vectors), *pairs.T)


def teacher_model(pairs: pa.Table, vectors: pa.Table, sites: list[str], prior: str) -> Counted:
    """Return the `TeacherModel` fitted to CALIBRATION_PAIRS; the second table has their COSINES."""
    p, cosines = pairs["probability"].to_numpy(), cosines_in(vectors, Sites(sites).pack_pairs(pairs, "pairs"))
    cosines[p < FLOOR] = np.nan  # their questions have vectors because of other pairs
    columns = (pairs[name].to_numpy() for name in ("label", "weight", "is_judged", "log_rate"))
    model = fit_teacher(Labelled(np.zeros((len(p), 0)), *columns), p, cosines, read_prior(prior))
    return Counted(model._asdict(), second=pa.table([pa.array(cosines, from_pandas=True)], schema=COSINES))


def moved_by(pairs: pa.Table, vectors: pa.Table, model: dict[str, float]) -> pa.Table:
    """Return rows of SCORED with the cosines of likely pairs, and the probabilities that `model` gives with them."""
    p = pairs["probability"].to_numpy()
    cosines = cosines_in(vectors, pairs_in(pairs))
    cosines[p < np.float32(FLOOR)] = np.nan
    moved = TeacherModel(**model).probabilities(p, cosines).astype(np.float32)
    columns = [pairs[name] for name in SCORED.names[:-2]]  # all but probability and teacher
    return pa.table([*columns, moved, pa.array(cosines, from_pandas=True)], schema=SCORED)
