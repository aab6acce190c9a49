"""The terms stage: texts, questions → the terms of every question, and how rare each is in this archive.

    terms      a task a shard   stems, tags and marks, by hash; spread over parts by the question's key
    rarities   one task         how many questions have each term, of all shards

The rarities are one array of fixed size (16 MB), whatever the archive. Evidence is computed from the terms.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.evidence import Words
from dupq.clusters.marks import marks_of
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs.layout import TermFiles
from dupq.shards import Shard, partition_of, read_shard_pieces
from dupq.tables import QUESTIONS, RARITIES, TERM_COUNTS, TERMS, TEXTS
from dupq.text.keys import RowsByKey, Sites, are_among
from dupq.text.terms import BUCKETS, Terms, document_counts, gathered, rarities, tags_of, terms_of

_COLUMNS, _ROWS_AT_ONCE = ["question_id", "title", "body_html", "tags", "owner"], 1_024


def make_terms(files: TermFiles, sites: Sites, language: str) -> Report:
    """Write the terms of each question, and the rarities."""
    report = run_tasks("terms", _terms_of_shard, [(files, sites.names, language, shard) for shard in files.shards])
    rows_in, rows_out = report.rows_in, report.rows_out
    report.add(run_tasks("rarities", _rarities, [(files, report.rows_in)]))
    report.rows_in, report.rows_out = rows_in, rows_out
    return report


def _terms_of_shard(files: TermFiles, sites: list[str], language: str, shard: Shard) -> Counts:
    output = files.terms(shard)

    def make() -> Counts:
        table = storage.read_table(storage.join(files.texts, shard.file), TEXTS)
        keys = table["key"].to_numpy()
        titles, texts = (terms_of(table[name].combine_chunks(), language) for name in ("title", "text"))
        tags, marks = _tags_and_marks(table, shard, Sites(sites), language)
        counted = document_counts(texts)
        seen = np.flatnonzero(counted)
        columns = [pa.array(seen.astype(np.int32)), pa.array(counted[seen])]
        counts = {"rows_in": len(keys), "rows_out": len(keys)}
        storage.write_table(files.counts(shard), pa.table(columns, schema=TERM_COUNTS), TERM_COUNTS)
        rows = _spread(partition_of(keys, files.parts), files.parts)
        batches = (
            _batch(keys[row], Words(*(terms.take(row) for terms in (titles, texts, tags, marks)))) for row in rows
        )
        exchange.write_parts(output, batches, TERMS)
        return counts

    return skip_or(output, make)


def _spread(parts: np.ndarray, count: int) -> Iterator[np.ndarray]:
    order = np.argsort(parts, kind="stable")
    bounds = np.searchsorted(parts[order], np.arange(count + 1))
    return (order[bounds[part] : bounds[part + 1]] for part in range(count))


def _tags_and_marks(texts: pa.Table, shard: Shard, sites: Sites, language: str) -> tuple[Terms, Terms]:
    """The tags and marks of rows of TEXTS, in their order."""
    rows, found = RowsByKey(texts["key"].to_numpy()), []
    for piece in read_shard_pieces(shard, QUESTIONS, _COLUMNS, _ROWS_AT_ONCE):
        own = rows.of(sites.pack(shard.site, piece["question_id"].to_numpy(), shard.uri))
        titles = texts["title"].take(pa.array(own))
        found.append((own, tags_of(piece["tags"]), marks_of(piece, titles, [shard.site] * len(own), language)))
    order = np.argsort(np.concatenate([own for own, _, _ in found]), kind="stable")
    tags, marks = (gathered(column).take(order) for column in list(zip(*found, strict=True))[1:])
    return tags, marks


def _batch(keys: np.ndarray, words: Words) -> pa.RecordBatch:
    lists = []
    for terms in words:
        offsets = pa.array(terms.offsets.astype(np.int32))
        lists += [pa.ListArray.from_arrays(offsets, pa.array(column)) for column in (terms.ids, terms.counts)]
    return pa.record_batch([pa.array(keys), *lists], schema=TERMS)


def _rarities(files: TermFiles, questions: int) -> Counts:
    def make() -> Counts:
        total = np.zeros(BUCKETS, np.int64)
        for shard in files.shards:
            table = storage.read_table(files.counts(shard), TERM_COUNTS)
            total[table["term"].to_numpy()] += table["questions"].to_numpy()
        column = pa.array(rarities(total, questions))
        storage.write_table(files.rarities, pa.table([column], schema=RARITIES), RARITIES)
        return {"different terms": int((total > 0).sum())}

    return skip_or(files.rarities, make)


def read_rarities(files: TermFiles) -> np.ndarray:
    """The rarity of each bucket (float32)."""
    return storage.read_table(files.rarities, RARITIES)["rarity"].to_numpy()


def read_terms(files: TermFiles, part: int, wanted: np.ndarray | None = None) -> pa.Table:
    """The rows of TERMS whose keys are in a part, all or only the `wanted` keys (sorted)."""
    batches = []
    for shard in files.shards:
        batch = exchange.read_part([files.terms(shard)], part)[0].replace_schema_metadata(None)
        if wanted is not None:
            batch = batch.filter(pa.array(are_among(wanted, batch["key"].to_numpy())))
        batches.append(batch)
    return pa.Table.from_batches(batches, TERMS)


def titles_only(table: pa.Table) -> pa.Table:
    """Rows of TERMS without texts, tags and marks."""
    for place, field in enumerate(TERMS):
        if place > TERMS.names.index("title_counts"):
            table = table.set_column(place, field, pa.array([[]] * len(table), field.type))
    return table


def words_of(table: pa.Table) -> tuple[RowsByKey, Words]:
    """Where each question is among rows of TERMS, and their words and tags. Memory: a copy of the table."""
    columns = [_column(table[name]) for name in TERMS.names[1:]]
    terms = [Terms(*columns[place], columns[place + 1][1]) for place in (0, 2, 4, 6)]
    return RowsByKey(table["key"].to_numpy()), Words(*terms)


def _column(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The offsets and values of a column of lists."""
    lists = column.combine_chunks()
    lengths = lists.value_lengths().to_numpy()
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), lists.flatten().to_numpy()
