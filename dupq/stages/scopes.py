"""questions → which of them may be compared: those that share a value of a column, or were asked within a window.

scopes   the entries of each question (neighbours/scopes.py)
grouped  the same of near duplicates, by what represents them: it is compared with all that one of them may be
scoped   embeddings with the entries of their questions, for the search
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq import kinds, storage
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, as_is, step
from dupq.job.table import Broadcast, Partition, Shards, Table, zipped
from dupq.kinds import columns, streamed
from dupq.neighbours.embeddings import keys_in
from dupq.neighbours.exact import EMPTY
from dupq.neighbours.scopes import distinct_entries, entries_of, hashes_of
from dupq.settings.sections import NeighbourSettings
from dupq.tables import EMBEDDED, GROUPED, QUESTIONS, REPRESENTATIVES, SCOPES
from dupq.text.keys import are_among, indices_among

SCOPED = pa.schema([("scope_values", pa.list_(pa.int64())), ("scope_times", pa.list_(pa.int64()))])
_DAY = 86_400_000  # milliseconds


class Scopes(NamedTuple):
    """Which questions may be compared."""

    table: Table[kinds.Scoped]  # a partition per shard, with its questions in their order
    window: int  # milliseconds
    grouped: Table[kinds.Grouped] | None = None  # one partition; None: near duplicates are not known yet


@stage("scopes", version=1)
def make_scopes(run: Run, questions: Shards[kinds.Question], settings: NeighbourSettings) -> Scopes:
    """Make the entries of each question."""
    table = run.map("scopes", scopes_of)(questions, settings)
    run.report.rows_in = run.report.rows_out = table.rows
    return Scopes(table, settings.window * _DAY)


@step(streamed(columns(QUESTIONS, "tags", "owner", "scope", "creation_date")), makes=SCOPES)
def scopes_of(questions: Iterator[pa.RecordBatch], settings: NeighbourSettings) -> StepResult[pa.Table]:
    """Return SCOPES of the questions of a shard: none of one without a value, or in a window without a date."""
    tables = [SCOPES.empty_table()]
    for batch in questions:
        values, times = _values(batch, settings.scope), pa.array(np.zeros(len(batch), np.int64))
        if settings.window:
            times = batch["creation_date"].cast(pa.int64())
            values = pc.if_else(times.is_valid(), values, pa.scalar(None, values.type))
        flat, parents = pc.list_flatten(values), pc.list_parent_indices(values)
        lengths = pc.list_value_length(values).fill_null(0)
        offsets = pa.array(np.append(0, np.cumsum(lengths.to_numpy())), pa.int32())
        lists = (pa.ListArray.from_arrays(offsets, column) for column in (flat, times.take(parents)))
        tables.append(pa.table([batch["key"], *lists], schema=SCOPES))
    made = pa.concat_tables(tables)
    alone = pc.sum(pc.equal(pc.list_value_length(made["values"]), 0)).as_py() or 0
    return StepResult(made, {"questions without a value or a date, compared with none": alone})


def _values(batch: pa.RecordBatch, scope: str) -> pa.ListArray:
    """Return hashes (int64) of the distinct values of each question; zero if all have the same scope."""
    name = {"column": "scope"}.get(scope, scope)
    if name in ("tags", "scope"):
        rows = batch[name].to_pylist()
    elif name == "owner":  # ids of askers are those of a site
        both = zip(batch["site"].to_pylist(), batch["owner"].to_pylist(), strict=True)
        rows = [[f"{site}/{owner}"] if owner else [] for site, owner in both]
    else:
        return pa.array([[0]] * len(batch), pa.list_(pa.int64()))
    hashes = [sorted({xxhash.xxh3_64_intdigest(text.encode()) for text in row or ()}) for row in rows]
    lists = pa.array(hashes, pa.list_(pa.uint64()))
    return pa.ListArray.from_arrays(lists.offsets, lists.values.view(pa.int64()))


def make_grouped(
    run: Run, scopes: Table[kinds.Scoped], representatives: Table[kinds.Representative]
) -> Table[kinds.Grouped]:
    """Make GROUPED of the questions that others represent, or that represent others."""
    by_shard = run.map("grouped_by_shard", grouped_of)(scopes, Broadcast(representatives))
    return run.map("grouped", as_is, GROUPED, keep=True)(Broadcast(by_shard))


@step(SCOPES, REPRESENTATIVES, makes=GROUPED)
def grouped_of(scopes: pa.Table, representatives: pa.Table) -> pa.Table:
    """Return GROUPED of the questions of a shard."""
    rows, are_members = indices_among(representatives["key"].to_numpy(), scopes["key"].to_numpy())
    owners = representatives["representative"].take(pa.array(rows[are_members]))
    return pa.table([*scopes.filter(pa.array(are_members)).columns, owners], schema=GROUPED)


def with_scopes(
    run: Run, embeddings: Table[kinds.Embedded], scopes: Scopes | None, names: list[str]
) -> Table[kinds.Embedded]:
    """Return embeddings with the entries of their questions, without those that are compared with none.

    All shards have as many partitions; `names` are the run's sites. Fingerprints are those of the entries too. Without
    `scopes` the embeddings are as they were.
    """
    if scopes is None:
        return embeddings
    shards = np.arange(embeddings.partitions) // (embeddings.partitions // scopes.table.partitions)
    own = zipped([Partition(scopes.table, shard) for shard in shards.tolist()])
    assert scopes.grouped is not None
    schema = storage.read_schema(embeddings.file(0)).remove_metadata()
    whole = replace(embeddings, schema=schema)
    return run.map("scoped", scoped_rows, pa.schema([*schema, *SCOPED]))(whole, own, Broadcast(scopes.grouped), names)


@step(EMBEDDED, SCOPES, GROUPED, makes=EMBEDDED)
def scoped_rows(embedded: pa.Table, scopes: pa.Table, grouped: pa.Table, names: list[str]) -> pa.Table:
    """Return those rows of a partition of embeddings that have entries, with these."""
    keys = keys_in(embedded, names)
    own = scopes.filter(pa.array(are_among(np.sort(keys), scopes["key"].to_numpy())))
    entries = distinct_entries(entries_of(own, grouped))
    rows = np.searchsorted(entries.keys, keys)
    sizes, hashes = np.diff(entries.starts), hashes_of(entries)[rows]
    lists = [
        pa.LargeListArray.from_arrays(entries.starts, column).take(pa.array(rows)).cast(field.type)
        for field, column in zip(SCOPED, (entries.values, entries.times), strict=True)
    ]
    fingerprints = embedded["fingerprint"].to_numpy()
    mixed = np.where(fingerprints == EMPTY, EMPTY, fingerprints ^ hashes)
    mixed[(mixed == EMPTY) & (fingerprints != EMPTY)] = 1
    table = embedded.set_column(embedded.schema.get_field_index("fingerprint"), "fingerprint", pa.array(mixed))
    for field, column in zip(SCOPED, lists, strict=True):
        table = table.append_column(field, column)
    return table.filter(pa.array(sizes[rows] > 0))
