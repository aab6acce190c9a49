"""What an experiment is made of: tables of rows, each a system with its settings and what the paper published of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Task = Literal["pairs", "ranking", "candidates"]
Which = Literal["own", "other"]  # the data set that is tested on, or the next one
PRESET = "preset "  # in front of a preset's name: the system is the encoder that it describes
QUOTED = "quoted"  # a system that cannot be run here: only what the paper published of it

# By the paper's data set, its figures by the names of our measures, as printed in the paper
Published = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Row:
    """A system of a table. Its name is one of NAMES in fitting.py, PRESET and a preset, or QUOTED."""

    label: str
    system: str
    published: Published = field(default_factory=dict)
    changes: tuple[str, ...] = ()  # of settings, `section.name=value`
    vectors: Which = "own"  # whose text the word vectors are learned from
    trained_on: Which = "own"  # whose pairs are learned from
    pairs: int = 0  # positive pairs learned from; 0: as many as the table says
    is_ours: bool = False  # dupq's own, which no paper has
    in_quick: bool = True  # whether a quick run has it

    @property
    def needs_other(self) -> bool:
        """Whether it is computed from a second data set too."""
        return "other" in (self.vectors, self.trained_on)


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper. All its rows read the same text, the title as often."""

    name: str  # --table
    paper: str
    title: str
    task: Task
    measures: Mapping[str, str]  # the columns: names of measures, and what they are called
    rows: tuple[Row, ...]
    text: tuple[str, ...] = ()  # settings of section text, for all rows
    pairs: int = 0  # positive pairs that are learned from at most; 0: all
    figure: Literal["", "epochs", "pairs"] = ""  # drawn over the epochs or over the pairs learned from
    percent: bool = True  # whether the paper prints per cent
    languages: tuple[str, ...] = ()  # of the data sets that it is for; none: of all
    note: str = ""  # what differs from the paper and cannot be seen in the table


@dataclass(frozen=True)
class Part:
    """What is computed on its own, kept, and shown in every table that has such a row."""

    data: str
    other: str | None
    task: Task
    system: str
    text: tuple[str, ...]
    changes: tuple[str, ...]
    vectors: Which
    trained_on: Which
    pairs: int
    is_quick: bool

    @property
    def learned_from(self) -> str:
        """The data set whose pairs it learns from."""
        return self.other if self.trained_on == "other" and self.other is not None else self.data

    @property
    def needs(self) -> tuple[str, ...]:
        """The data sets that it reads."""
        uses_other = "other" in (self.vectors, self.trained_on)
        return (self.data, self.other) if uses_other and self.other is not None else (self.data,)


class VectorSource(NamedTuple):
    """The word vectors that a part needs: of the words of one data set, from the text of one."""

    words_of: str
    text_of: str


def source_of(part: Part) -> VectorSource:
    """Whose words and whose text. Where the pairs are of another data set, its words are those of the text."""
    own, other = part.data, part.other or part.data
    text_of = own if part.vectors == "own" else other
    return VectorSource(own if part.trained_on == "own" else text_of, text_of)


def part_of(table: Table, row: Row, data: str, other: str | None, is_quick: bool) -> Part | None:
    """What a row needs computed on a data set.

    None if it is only quoted, is left out of quick runs, or needs another data set than there is.
    """
    if row.system == QUOTED or (is_quick and not row.in_quick):
        return None
    if other is None and row.needs_other:
        return None
    learned = row.vectors, row.trained_on, row.pairs or table.pairs
    return Part(data, other, table.task, row.system, table.text, row.changes, *learned, is_quick)
