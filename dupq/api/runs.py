"""A finished run for notebooks: its tables, clusters, explanations and look-ups (`dupq.open_run`), those of several
nights (`dupq.open_runs`), and titles beside the keys of a table.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup as Html

from dupq import storage
from dupq.api.inputs import collected, key_of, keys_in, names_of, text
from dupq.errors import DupqError
from dupq.report.summary import in_lines, told
from dupq.runs import reader
from dupq.runs.inventory import known_runs
from dupq.runs.reader import Key, TableView, in_memory, link
from dupq.runs.records import Success
from dupq.storage import read_as
from dupq.system import require

if TYPE_CHECKING:
    from dupq.api.encoders import TextEncoder
    from dupq.api.lookup import Decision, Explanation
    from dupq.api.plots import Plots
    from dupq.evaluation.sampling import Estimate
    from dupq.text.tokens import Markup

_ENDS = ("", "_left", "_right")


def _with(frame: object, columns: dict[str, list[str | None]]) -> object:
    """A table with more columns, or with others in the place of those of their names, of the kind that it was."""
    if isinstance(frame, pa.Table):
        kept = frame.drop_columns([name for name in columns if name in frame.column_names])
        for name, values in columns.items():
            kept = kept.append_column(name, pa.array(values, pa.string()))
        return kept
    if hasattr(frame, "with_columns"):  # Polars, which need not be installed
        make: Callable[..., pa.Table] = type(frame)  # of Polars in truth
        return frame.with_columns(make(columns, schema=dict.fromkeys(columns, str)).get_columns())
    if hasattr(frame, "assign"):
        return frame.assign(**columns)
    raise DupqError(f"with_titles: {type(frame).__name__}; a pandas, Polars or Arrow table expected")


Frame = TypeVar("Frame")  # a table of pandas, Polars or Arrow


class Member(NamedTuple):
    """A question of a cluster."""

    question: str  # site/question_id
    title: str | None  # None: no longer in the archive
    score: int | None
    is_canonical: bool


@dataclass(frozen=True)
class Cluster:
    """A question's cluster: of one question, if it has no duplicates."""

    cluster_id: str
    canonical: str  # site/question_id
    canonical_reason: str | None  # the criterion that decided; None: it is alone
    questions: list[Member]  # the canonical one first
    pairs: TableView  # the rows of `pairs` that join two of these questions: why they are one cluster


class Run(reader.Run):
    """One run's folder. Everything is read lazily.

    Tables are `pairs`, `clusters`, `cluster_stats`, `worklist`, `changes`, `embeddings`, `review` and, from the archive
    that the run was made from, `questions` and `links`; `manifest`, `config` and `metrics` are dictionaries. A question
    is named "site/question_id", or (site, question_id). A question that a run cannot answer raises DupqError.
    """

    def __repr__(self) -> str:
        """Return what the run found, what it missed and why to trust it, as its end said."""
        return in_lines({"RUN": [self.uri], **told(self.uri)})

    def _repr_html_(self) -> str:
        rows = [
            Html("<tr><th>{}</th><td>{}</td></tr>").format(name.capitalize(), Html("<br>").join(lines))
            for name, lines in {"run": [self.uri], **told(self.uri)}.items()
        ]
        return Html("<table>{}</table>").format(Html("").join(rows))

    @cached_property
    def plot(self) -> "Plots":
        """Charts by altair: `plot.probabilities()`, `.calibration()`, `.sizes()`, `.lost()`, `.changes()`."""
        require("altair", "Run.plot")
        from dupq.api.plots import Plots

        return Plots(self)

    @property
    def threshold(self) -> float:
        """The probability from which a pair may join its questions."""
        threshold = self.metrics.get("threshold")
        if threshold is None:
            raise DupqError(f"{self.uri}: the run's metrics.json tells of no threshold")
        return threshold

    @property
    def finished(self) -> datetime:
        """When the run succeeded (UTC)."""
        place = storage.join(self.uri, "_SUCCESS")
        return datetime.fromisoformat(read_as(place, Success, "the run has not succeeded")["finished"])

    def with_titles(self, frame: Frame) -> Frame:
        """A table of pandas, Polars or Arrow with the titles of its questions, and their addresses on the web.

        The result is of the same kind, or in memory if `frame` is lazy. Questions are in the columns `site` and
        `question_id`, or `site_left`, `question_id_left` and likewise for `right`; so are `title` and `link`, which are
        None where a question is no longer in the archive, or its site no host name. The text is its author's: escape
        it. Raises DupqError for another table, with the row where one holds no question.
        """
        table = collected(frame)
        names = names_of(table) or ()
        ends = [end for end in _ENDS if f"site{end}" in names and f"question_id{end}" in names]
        if not ends:
            raise DupqError(
                "with_titles: a pandas, Polars or Arrow table with the columns site and question_id expected, or with "
                f"site_left, question_id_left and so on; {type(table).__name__} has {', '.join(names) or 'no columns'}"
            )
        columns: dict[str, list[str | None]] = {}
        for end in ends:
            keys = keys_in(table, end, "with_titles")
            found = self.titles(key for key in keys if key is not None)
            columns[f"title{end}"] = [found[key].title if key in found else None for key in keys]
            columns[f"link{end}"] = [None if key is None else link(key) for key in keys]
        return cast(Frame, _with(table, columns))

    def cluster_of(self, question: str | Key) -> Cluster:
        """The cluster of a question, with titles, and what makes it one."""
        site, number = key_of(question)
        own = self.clusters.arrow(filter=(pc.field("question_id") == number) & (pc.field("site") == site))
        if not len(own):
            raise DupqError(f"{site}/{number}: no such question in the run {self.uri}")
        row = own.to_pylist()[0]
        members = self.clusters.arrow(filter=pc.field("cluster_id") == row["cluster_id"])
        order = [("is_canonical", "descending"), ("site", "ascending"), ("question_id", "ascending")]
        rows = members.sort_by(order).to_pylist()
        keys = [(found["site"], found["question_id"]) for found in rows]
        titles = self.titles(keys)
        shown = (titles.get(key, (None, None)) for key in keys)
        questions = [
            Member(_label(key), title, score, found["is_canonical"])
            for key, (title, score), found in zip(keys, shown, rows, strict=True)
        ]
        joining = self.pairs_among(keys)
        pairs = in_memory(self.pairs.place, joining.filter(joining["joined"]))
        canonical = _label((row["canonical_site"], row["canonical_id"]))
        return Cluster(row["cluster_id"], canonical, row["canonical_reason"], questions, pairs)

    def at(self, threshold: float | None = None, *, precision: float | None = None) -> "Decision":
        """The clusters of another decision: of another threshold, or of the one for another precision.

        docs/python.md says what may differ from a new run. Raises DupqError unless exactly one of both is given.
        """
        from dupq.api.lookup import decided

        return decided(self, threshold, precision)

    def changes_since(self, earlier: reader.Run) -> TableView:
        """What became of the clusters of any earlier run over the same archive: rows as in `changes`.

        Ids are those that each run has written, so of runs that were not made with --previous one after the other only
        the questions tell which cluster is which. The clusters of both are in memory.
        """
        from dupq.api.lookup import changes_since

        return changes_since(self, earlier)

    @cached_property
    def review(self) -> TableView:
        """The sample of pairs to be judged, in the order of review.tsv and with what is filled in there."""
        from dupq.api.lookup import sample

        return sample(self)

    def judged(self, verdicts: Any) -> "Estimate":
        """The precision and recall of this run, from verdicts on its sample; each has an interval of 95 percent.

        `verdicts` is the URI of a filled-in review.tsv, or a table (pandas, Polars, Arrow) like `review`, with
        `verdict` filled in. Verdicts on other pairs are left out. Raises DupqError for what is no verdict.
        """
        from dupq.api.lookup import estimated

        return estimated(self, verdicts)

    @cached_property
    def encoder(self) -> "TextEncoder":
        """The encoder that the run was made with."""
        from dupq.api.encoders import load_encoder

        return load_encoder(self.encoder_uri)

    def similar(self, title: str, body_html: str = "", k: int = 10) -> TableView:
        """The k questions of the run that are most like a new one, and how likely each asks the same; see `match`."""
        body = {"body_html": [text(body_html, "similar: body_html")]} if body_html else {}
        return self.match({"title": [text(title, "similar: the title")], **body}, k)

    def match(self, texts: Any, k: int = 10, *, format: "Markup" = "auto") -> TableView:
        """The k questions of the run that each of some new texts is nearest to, the nearest first.

        `texts` and `format` are as for `dupq.find_duplicates`. Each row has the text's id, or row, as `text`, a
        question, the encoder's score, and the probability that both are duplicates, as if the text were a question of
        the archive; it is null where the run's encoder or questions are gone. A text without a body is less alike than
        it would be with one. Near copies are there as the one question that represents them. All embeddings are
        read, file by file, and the pairs of the questions that were found.
        """
        from dupq.api.inputs import given_texts
        from dupq.api.lookup import matched

        return matched(self, self.encoder, given_texts(texts, format, "match"), k)

    def judge(self, left: str | Key, right: str | Key, verdict: str) -> None:
        """Write a verdict (same, different or unsure) on two questions, where the next run reads it.

        It is the file that `dupq review` and `dupq serve` write. Raises DupqError for another word, and for one
        question twice.
        """
        from dupq.runs import queries

        keys = [key_of(left), key_of(right)]
        titles = self.titles(keys)
        queries.judge(self, {key: titles[key].title if key in titles else None for key in keys}, verdict)

    def explain(self, left: str | Key, right: str | Key) -> "Explanation":
        """The evidence that two questions are duplicates."""
        from dupq.api.lookup import Explanation

        return Explanation(self, lambda: self.encoder, key_of(left), key_of(right))


def open_run(uri: str | os.PathLike[str]) -> Run:
    """The run at `uri`, or the last one that succeeded if `uri` is a folder of runs; local or on S3.

    Raises DupqError if there is neither.
    """
    return Run(reader.place_of(uri))


def _label(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


def open_runs(uri: str | os.PathLike[str]) -> list[Run]:
    """The whole runs in the folder of runs at `uri`, local or on S3, the oldest first.

    Runs that are unfinished, damaged, or that a gate has refused are left out. Raises DupqError if there is none.
    """
    place = storage.absolute(uri)
    found = [known for known in known_runs(place, datetime.now(UTC)) if known.is_whole]
    if not found:
        raise DupqError(f"{place}: no whole run is here; give the --output of dupq dedup")
    return [Run(storage.join(place, known.run_id)) for known in found]
