"""The kinds of rows that tables hold, as types: mypy tells a table of pairs from one of texts.

A kind is named by one row; where it has all columns of another kind, it is a subtype. At run time a table has nothing
but its schema, and the runner compares columns (dupq/job/step.py). A step says with a schema and `columns`, `streamed`
or `whole` how it reads a table.
"""

from typing import TYPE_CHECKING, Any, Generic, NewType, TypeVar

import pyarrow as pa

Row = TypeVar("Row")
Kind = TypeVar("Kind", covariant=True)


class Schema(Generic[Row]):
    """The schema of a table of such rows, for mypy: at run time a `pa.Schema`, which has no types."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return what a `pa.Schema` has of this name."""

        def __iter__(self) -> Any:
            """Yield the fields."""


class Stream(Generic[Kind]):
    """Rows that a step iterates over, table by table, with a few of these in memory."""


Question = NewType("Question", object)
Answer = NewType("Answer", object)
Link = NewType("Link", object)
Id = NewType("Id", object)
Reject = NewType("Reject", object)
Pair = NewType("Pair", object)
Work = NewType("Work", object)
Clustered = NewType("Clustered", object)
ChangedCluster = NewType("ChangedCluster", object)
ClusterStats = NewType("ClusterStats", object)
KeyPair = NewType("KeyPair", object)
JoinedPair = NewType("JoinedPair", KeyPair)
Verified = NewType("Verified", KeyPair)
Neighbour = NewType("Neighbour", object)
Candidate = NewType("Candidate", KeyPair)
Compared = NewType("Compared", Candidate)
Judgement = NewType("Judgement", Pair)
Answered = NewType("Answered", KeyPair)
Cut = NewType("Cut", object)
Scored = NewType("Scored", KeyPair)
Block = NewType("Block", object)
BlockRows = NewType("BlockRows", object)
RowRange = NewType("RowRange", object)
CalibrationPair = NewType("CalibrationPair", object)
ReviewPair = NewType("ReviewPair", KeyPair)
TermCount = NewType("TermCount", object)
Rarity = NewType("Rarity", object)
Key = NewType("Key", object)
Text = NewType("Text", Key)
QuestionText = NewType("QuestionText", Text)
ContentHash = NewType("ContentHash", Key)
Content = NewType("Content", ContentHash)
Representative = NewType("Representative", Key)
TitleContext = NewType("TitleContext", Key)
Scoped = NewType("Scoped", Key)
Grouped = NewType("Grouped", Scoped)
Dated = NewType("Dated", Key)
Nearest = NewType("Nearest", Key)
Node = NewType("Node", Key)
Label = NewType("Label", Key)
Member = NewType("Member", Label)
Terms = NewType("Terms", Key)
KnownSet = NewType("KnownSet", Key)
Sampled = NewType("Sampled", Key)
TextHash = NewType("TextHash", Key)
BandKey = NewType("BandKey", Key)
ShingleSet = NewType("ShingleSet", Key)
TitledShingle = NewType("TitledShingle", object)
Shingle = NewType("Shingle", object)
Embedded = NewType("Embedded", object)
KeyedVector = NewType("KeyedVector", Key)
Signature = NewType("Signature", object)
Json = NewType("Json", object)

_STREAMED, _OPEN = b"streamed", b"open"


def columns(schema: Schema[Row], *names: str) -> Schema[Row]:
    """Return the schema of these columns alone: a step that declares it reads no others."""
    some: Schema[Row] = pa.schema([schema.field(name) for name in names], schema.metadata)
    return some


def streamed(schema: Schema[Row]) -> Schema[Stream[Row]]:
    """Return the schema of an input that a step iterates over (`Streamed`, `Shards`)."""
    return _marked(schema, _STREAMED)


def open_schema(schema: Schema[Row]) -> Schema[Row]:
    """Return the schema of tables that have more columns, which depend on a setting; a step reads all of them."""
    return _marked(schema, _OPEN)


def is_streamed(schema: pa.Schema) -> bool:
    """Return whether a step iterates over an input of this schema."""
    return _STREAMED in (schema.metadata or {})


def is_open(schema: pa.Schema) -> bool:
    """Return whether tables of this schema have more columns."""
    return _OPEN in (schema.metadata or {})


def _marked(schema: pa.Schema, mark: bytes) -> pa.Schema:
    return schema.with_metadata({**(schema.metadata or {}), mark: b""})


JSON: Schema[Json] = pa.schema([])  # of a step that returns a dict, or bytes
ANY: Schema[Any] = open_schema(pa.schema([]))  # of rows of whatever kind
