"""scored pairs, questions → the pairs with probabilities that a teacher's cosines have moved.

    wanted       a task a part   the questions of its pairs above a floor; and of such pairs of calibration
    wanted_of    a task a part   those of its own questions that any part wants
    vectors      a task a slice  what the teacher makes of those of a shard, or made of them in the earlier run
    vectors_for  a task a part   the vectors of its questions, for the parts that want them
    fit          one task        how much a cosine says in this archive (clusters/teacher_evidence.py)
    moved        a task a part   its pairs again, with cosine and probability

A shard is cut so that a small archive has work for all workers. On CPUs a vector depends on its text and the model
alone: the same bytes for any workers, shards and earlier run. On GPUs its last bits depend on the batch, which is cut
from a slice: the same inputs give the same bytes, but vectors that are taken over are those of other batches.

Memory: of a slice of a shard the texts, 2 kB each, and the vectors, beside the model and its libraries (with MiniLM
0.9 GB, which the process keeps); later the vectors of two parts' questions.
"""

import importlib.metadata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import devices, storage
from dupq.clusters.calibration import Labelled
from dupq.clusters.prior import read_prior
from dupq.clusters.teacher_evidence import TeacherModel, fit_teacher
from dupq.encoders.sentence_models import FLOOR, Teacher, cosines_of, teacher_texts, vectors_of
from dupq.execution import exchange
from dupq.execution.gpus import Gpus
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs import versions
from dupq.runs.keys import read_keys, write_keys
from dupq.runs.layout import RunLayout, TeacherFiles
from dupq.shards import Shard, partition_of, read_shard_pieces
from dupq.stages.earlier import LEFT_OUT, Earlier, earlier_vectors, find_contents, hashes_in
from dupq.stages.encoding.device import gpus_to_make
from dupq.tables import CALIBRATION_PAIRS, CONTENT_HASHES, COSINES, KEYS, QUESTIONS, SCORED, taught
from dupq.text.keys import MAXIMUM_ID, RowsByKey, Sites, are_among, distinct, places_among

_ROWS_AT_ONCE = 1_024
_SLICE = 250  # questions of a slice where there are few: some seconds on a CPU
_SLICES = 64  # of all shards together; a shard is a slice where there are more


@dataclass(frozen=True)
class _Work:
    """What all slices have in common."""

    files: TeacherFiles
    sites: list[str]
    teacher: Teacher
    code: str
    device: str
    slices: int  # of a shard
    earlier: Earlier | None


def read_likely(
    files: TeacherFiles,
    sites: Sites,
    teacher: Teacher,
    code: str,
    gpus: Gpus,
    prior: str = "",
    since: RunLayout | None = None,
) -> Report:
    """Write the pairs anew, as probable as they are once the teacher has read those above the floor.

    Vectors of questions that say what they said in the run `since` are taken from there. `code` is text.code, `prior`
    the address of another one than dupq's.
    """
    parts, shards = range(files.parts), files.shards
    report = run_tasks("wanted", _want, [(files, sites.names, part) for part in range(files.parts + 1)])
    wanted = run_tasks("wanted", _want_of, [(files, home) for home in parts])
    report.add(wanted)
    made_by: dict[str, object] = {"model": teacher.fingerprint, "code": code, "algorithm": versions.TEACHER["teacher"]}
    made_by |= {"torch": importlib.metadata.version("torch")}
    taken = gpus_to_make(files.made_as, files.vectors, gpus, made_by)
    earlier = earlier_vectors(since, storage.read_json(files.made_as))
    slices = -(-min(_SLICES, 1 + wanted.rows_out // _SLICE) // len(shards))
    device = devices.GPU if taken else devices.CPU
    work = _Work(files, sites.names, teacher, code, device, slices, earlier)
    calls = [(work, shard, number) for shard in shards for number in range(slices)]
    made = run_tasks("teacher", _vectors_of_slice, calls, gpus=taken)
    report.add(made)
    report.add(run_tasks("vectors", _vectors_for, [(files, home) for home in parts]))
    report.add(run_tasks("fit", _fit, [(files, sites.names, prior)]))
    report.add(run_tasks("moved", _move, [(files, part) for part in parts]))
    report.rows_in, report.rows_out = wanted.rows_out, made.rows_out
    return report


def _want(files: TeacherFiles, sites: list[str], part: int) -> Counts:
    output = files.wanted(part)

    def make() -> Counts:
        keys = _of_calibration(files, Sites(sites)) if part == files.parts else _of_pairs(files, part)
        homes = partition_of(keys, files.parts)
        exchange.write_parts(output, exchange.split([keys], KEYS, homes, files.parts), KEYS)
        return {}

    return skip_or(output, make)


def _of_pairs(files: TeacherFiles, part: int) -> np.ndarray:
    pairs = storage.read_table(files.scored(part), SCORED, ["left", "right", "probability"])
    likely = pairs.filter(pc.greater_equal(pairs["probability"], pa.scalar(FLOOR, pa.float32())))
    return distinct(np.concatenate([likely["left"].to_numpy(), likely["right"].to_numpy()]))


def _of_calibration(files: TeacherFiles, sites: Sites) -> np.ndarray:
    pairs = storage.read_table(files.sampled, CALIBRATION_PAIRS)
    return distinct(np.concatenate(_sides(files, pairs.filter(pc.greater_equal(pairs["probability"], FLOOR)), sites)))


def _sides(files: TeacherFiles, pairs: pa.Table, sites: Sites) -> list[np.ndarray]:
    """The left and the right keys of rows of CALIBRATION_PAIRS."""
    sides = [(pairs[f"site_{side}"], pairs[f"question_id_{side}"]) for side in ("left", "right")]
    return [sites.pack_columns(*side, files.sampled) for side in sides]


def _want_of(files: TeacherFiles, home: int) -> Counts:
    output = files.wanted_of(home)

    def make() -> Counts:
        uris = [files.wanted(part) for part in range(files.parts + 1)]
        keys = distinct(exchange.columns_of(exchange.read_part(uris, home), KEYS)[0])
        write_keys(output, keys)
        return {"rows_out": len(keys)}

    return skip_or(output, make)


def _vectors_of_slice(work: _Work, shard: Shard, number: int) -> Counts:
    files, name = work.files, f"{storage.name(shard.file).removesuffix('.parquet')}-{number:02d}.parquet"
    output = _vectors_in(files.vectors, name)

    def make() -> Counts:
        keys, hashes = _wanted_in(work, shard, number)
        ids, dimensions = keys & MAXIMUM_ID, work.teacher.dimensions
        names, then, left_out = find_contents(work.earlier, shard.site, ids)
        same = then.are_same(ids, hashes)
        vectors = np.zeros((len(ids), dimensions), np.float16)
        vectors[same] = _vectors_then(work.earlier, names, ids[same], dimensions)
        if not same.all():
            import torch

            torch.set_num_threads(1)  # as many as the task has CPUs
            vectors[~same] = vectors_of(work.teacher, _texts(shard, ids[~same], work.code), work.device)
        table = pa.table([pa.array(column) for column in (keys, *hashes.T)], schema=CONTENT_HASHES)
        storage.write_table(storage.join(files.contents, name), table, CONTENT_HASHES)
        homes = partition_of(keys, files.parts)
        rows = (np.flatnonzero(homes == home) for home in range(files.parts))
        batches = (_batch(keys[some], vectors[some]) for some in rows)
        exchange.write_parts(output, batches, taught(dimensions))
        counts = {"vectors as in the earlier run": int(same.sum()), LEFT_OUT: left_out}
        return {"rows_in": len(keys), "rows_out": len(keys), **counts}

    return skip_or(output, make)


def _vectors_in(folder: str, name: str) -> str:
    return storage.join(folder, f"{name.removesuffix('.parquet')}.arrow")


def _wanted_in(work: _Work, shard: Shard, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The wanted keys in a slice of a shard, ascending, and the hashes of what these questions say (int64, (n, 2))."""
    mine = hashes_in([storage.join(work.files.contents_now, shard.file)])
    keys = Sites(work.sites).pack(shard.site, mine.ids, shard.uri)
    is_wanted = np.zeros(len(keys), bool)
    for home in range(work.files.parts):
        is_wanted |= are_among(read_keys(work.files.wanted_of(home)), keys)
    rows = np.array_split(np.flatnonzero(is_wanted), work.slices)[number]
    return keys[rows], mine.hashes[rows]


def _vectors_then(earlier: Earlier | None, names: Sequence[str], ids: np.ndarray, dimensions: int) -> np.ndarray:
    """The vectors of the questions `ids` that are in these files of the earlier run."""
    found = np.zeros((len(ids), dimensions), np.float16)
    if earlier is None:
        return found
    for name in names:
        keys, vectors = _columns(exchange.read_all(_vectors_in(earlier.embeddings, name)))
        places, are_here = places_among(keys & MAXIMUM_ID, ids)  # which are of one site
        found[are_here] = vectors[places[are_here]]
    return found


def _texts(shard: Shard, ids: np.ndarray, code: str) -> list[str]:
    """What the teacher reads of the questions `ids` of a shard, in their order."""
    found: dict[int, str] = {}
    for piece in read_shard_pieces(shard, QUESTIONS, ["question_id", "title", "body_html"], _ROWS_AT_ONCE):
        some = piece.filter(pc.is_in(piece["question_id"], pa.array(ids)))
        texts = teacher_texts(some["title"].to_pylist(), some["body_html"].to_pylist(), code)
        found.update(zip(some["question_id"].to_pylist(), texts, strict=True))
    return [found[number] for number in ids.tolist()]


def _batch(keys: np.ndarray, vectors: np.ndarray) -> pa.RecordBatch:
    flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return pa.record_batch([pa.array(keys), flat], schema=taught(vectors.shape[1]))


def _columns(batches: list[pa.RecordBatch]) -> tuple[np.ndarray, np.ndarray]:
    """The keys, ascending, and vectors (float16, one row each) of batches of `taught`."""
    table = pa.Table.from_batches(batches).sort_by("key").combine_chunks()
    flat = pc.list_flatten(table["vector"]).to_numpy()
    return table["key"].to_numpy(), flat.reshape(len(table), table.schema.field("vector").type.list_size)


def read_vectors(files: TeacherFiles, home: int) -> pa.Table:
    """The keys in a part that have a vector of the teacher, and their vectors (rows of `taught`)."""
    uris = [file.uri for file in storage.list_files(files.vectors, ".arrow")]
    return pa.Table.from_batches(exchange.read_part(uris, home))


def _vectors_for(files: TeacherFiles, home: int) -> Counts:
    output = files.vectors_for(home)

    def make() -> Counts:
        table = read_vectors(files, home).combine_chunks()
        places = RowsByKey(table["key"].to_numpy())
        wanted = (exchange.read_part([files.wanted(part)], home)[0] for part in range(files.parts + 1))
        rows = (places.of(some["key"].to_numpy()) for some in wanted)
        batches = (exchange.one_batch(table.take(pa.array(some))) for some in rows)
        exchange.write_parts(output, batches, table.schema)
        return {}

    return skip_or(output, make)


def cosines(files: TeacherFiles, part: int, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The teacher's cosine (float32) of each pair of keys of those that `part` wants; calibration is `files.parts`.

    NaN where the part does not want both: then the pair is below the floor. Memory: the vectors that it wants of its
    left keys' parts, which for pairs is its own, and of one other part.
    """
    found = np.full(len(left), np.nan, np.float32)
    if not len(left):
        return found
    own = _handed(files, part, distinct(partition_of(left, files.parts)))
    homes = partition_of(right, files.parts)
    for home in distinct(homes).tolist():
        rows = np.flatnonzero(homes == home)
        found[rows] = cosines_of(own, _handed(files, part, [home]), left[rows], right[rows])
    return found


def _handed(files: TeacherFiles, part: int, homes: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
    """The keys, ascending, and vectors of questions of `homes` that `part` wants."""
    return _columns(exchange.read_part([files.vectors_for(home) for home in homes], part))


def _fit(files: TeacherFiles, sites: list[str], prior: str) -> Counts:
    def make() -> Counts:
        pairs = storage.read_table(files.sampled, CALIBRATION_PAIRS)
        found = cosines(files, files.parts, *_sides(files, pairs, Sites(sites)))
        p = pairs["probability"].to_numpy()
        found[p < FLOOR] = np.nan  # both are read, but for other pairs
        labels, weights, is_judged, rates = (
            pairs[name].to_numpy() for name in ("label", "weight", "is_judged", "log_rate")
        )
        labelled = Labelled(np.zeros((len(p), 0)), labels, weights, is_judged, rates)
        model = fit_teacher(labelled, p, found, read_prior(prior))
        storage.write_table(files.cosines, pa.table([pa.array(found, mask=np.isnan(found))], schema=COSINES), COSINES)
        storage.write_json(files.model, model._asdict())
        return {}

    return skip_or(files.model, make)


def _move(files: TeacherFiles, part: int) -> Counts:
    output = files.moved(part)

    def make() -> Counts:
        pairs = storage.read_table(files.scored(part), SCORED)
        p = pairs["probability"].to_numpy()
        found = cosines(files, part, pairs["left"].to_numpy(), pairs["right"].to_numpy())
        found[p < np.float32(FLOOR)] = np.nan
        moved = TeacherModel(**storage.read_json(files.model)).probabilities(p, found).astype(np.float32)
        columns = {"probability": pa.array(moved), "teacher": pa.array(found, mask=np.isnan(found))}
        table = pa.table([columns.get(name, pairs[name]) for name in SCORED.names], schema=SCORED)
        storage.write_table(output, table, SCORED)
        return {}

    return skip_or(output, make)
