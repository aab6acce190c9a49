"""The data sets of the experiments, whole in memory, as collections of tokenised questions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.evaluation.systems.collection import Collection
from dupq.links.tables import known_duplicates
from dupq.settings.text import TextSettings
from dupq.shards import question_shards, read_shard
from dupq.tables import QUESTIONS, TEXTS
from dupq.text.keys import Sites
from dupq.text.questions import texts_table

NO_PAIRS = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class DataSet:
    """Questions, row by row in the order of their keys, and what is known of their pairs (keys, left < right)."""

    name: str
    language: str
    keys: np.ndarray  # int64, ascending
    titles: pa.StringArray
    bodies: pa.StringArray  # HTML; "" where there are none
    tags: tuple[tuple[str, ...], ...]
    links: np.ndarray  # int64, (m, 2): duplicates
    wrong: np.ndarray  # int64, (m, 2): labelled as no duplicates
    candidates: Mapping[int, tuple[int, ...]]  # of a query, in the order of a search engine; empty where none are given
    tested: np.ndarray | None = None  # keys of the test part, where the data set has one of its own

    @property
    def has_bodies(self) -> bool:
        """Whether any question has a body."""
        return bool(pc.any(pc.not_equal(self.bodies, "")).as_py())


def read_site(questions: str, links: str | None, site: str) -> DataSet:
    """A site of an ingested archive. Raises DupqError for what is missing or damaged."""
    shards, _ = question_shards(questions)
    columns = ["question_id", "title", "body_html", "tags"]
    own = [read_shard(shard, QUESTIONS, columns) for shard in shards if shard.site == site]
    table = pa.concat_tables(own).sort_by("question_id").combine_chunks()
    alone = Sites([site])
    keys = alone.pack(site, table["question_id"].to_numpy(), questions)
    known = NO_PAIRS if links is None else known_duplicates(links, alone)
    return DataSet(
        site.removesuffix(".stackexchange.com"),
        "english",
        keys,
        _column(table["title"]),
        _column(table["body_html"]),
        tuple(tuple(tags) for tags in table["tags"].to_pylist()),
        known[np.isin(known, keys).all(axis=1)],
        NO_PAIRS,
        {},
    )


def _column(column: pa.ChunkedArray) -> pa.StringArray:
    return pa.concat_arrays([pa.array([], pa.string()), *column.cast(pa.string()).chunks])


def texts_of(data: DataSet, settings: TextSettings) -> pa.Table:
    """The rows of TEXTS of all questions, read as `settings` say."""
    return texts_table(pa.array(data.keys), data.titles, data.bodies, settings)


def collection_of(data: DataSet, settings: TextSettings) -> Collection:
    """What every system reads of the data set."""
    table = texts_of(data, settings)
    titles, texts = table["title"].to_pylist(), table["text"].to_pylist()
    bodies = [text[len(title) :].lstrip(" ") for title, text in zip(titles, texts, strict=True)]
    columns = [pa.array(column, TEXTS.field("text").type) for column in (texts, titles, bodies)]
    return Collection(data.keys, *columns, data.tags, settings.language)
