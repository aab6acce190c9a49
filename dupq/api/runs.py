"""A finished run for notebooks (`dupq.open_run`), and all runs of a folder (`dupq.open_runs`).

Explanations and decisions at another threshold are in lookup.py, new texts in matching.py; charts, for which altair is
needed, in plots.py.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup as Html

from dupq import storage
from dupq.api.encoders import TextEncoder, load_encoder
from dupq.api.inputs import collected, column_of, key_of, keys_in, names_of, text, texts
from dupq.api.lookup import Decision, Explanation, decided
from dupq.api.matching import HeldMatcher, Matcher
from dupq.errors import DupqError
from dupq.evaluation.sampling import Estimate, Judged, estimate, judged, read_verdicts, verdicts_of
from dupq.evaluation.verdicts import COLUMNS, Verdict, format_verdicts, parse_verdicts
from dupq.job.records import Success
from dupq.report.summary import counted, findings, in_lines
from dupq.runs import queries, reader
from dupq.runs.inventory import known_runs
from dupq.runs.reader import Key, link, row_of
from dupq.runs.scoring import ENDS
from dupq.runs.views import TableView, in_memory
from dupq.storage import read_as
from dupq.system import require
from dupq.text.keys import Sites
from dupq.text.tokens import Markup

if TYPE_CHECKING:
    from dupq.api.plots import Plots

_ENDS = ("", "_left", "_right")
_SHOWN = 10  # questions of a cluster
_PLAIN_KEY = re.compile(r".+/(?:0|[1-9][0-9]{0,14})")  # site/question_id, which is then its own id too
Frame = TypeVar("Frame")  # a table of pandas, Polars or Arrow


class Member(NamedTuple):
    """A question of a cluster."""

    question: str  # site/question_id
    title: str | None  # None: no longer in the archive
    score: int | None
    is_canonical: bool


@dataclass(frozen=True, repr=False)
class Cluster:
    """A question's cluster; of that question alone, if it has no duplicates."""

    cluster_id: str
    canonical: str  # site/question_id
    canonical_reason: str | None  # the criterion that decided; None: the question is alone
    questions: list[Member]  # the canonical one first
    pairs: TableView  # the rows of the run's `pairs` that join two of these questions

    def __repr__(self) -> str:
        """Return its questions, a line each, the one to keep first."""
        shown = [f"  {of.question}  {of.title}" for of in self.questions[:_SHOWN]]
        more = [f"  and {len(self.questions) - _SHOWN:,} more"] * (len(self.questions) > _SHOWN)
        return "\n".join([self._headline(), *shown, *more])

    def _repr_html_(self) -> str:
        row = Html("<tr><td>{}</td><td>{}</td></tr>")
        rows = Html("").join(row.format(of.question, of.title) for of in self.questions[:_SHOWN])
        return Html("<p>{}</p><table>{}</table>").format(self._headline(), rows) + self.pairs._repr_html_()

    def _headline(self) -> str:
        return f"cluster {self.cluster_id}: {counted(len(self.questions), 'question')}, to keep is the first"


class Run(reader.Run):
    """A run's folder. Everything is read lazily.

    Its tables are `pairs`, `clusters`, `cluster_stats`, `worklist`, `changes`, `embeddings`, `review` and, from the
    archive, `questions` and `links`; `manifest`, `config` and `metrics` are dictionaries. Questions are named as
    "site/question_id" or (site, question_id). Raises DupqError for an unknown question, and for a missing table.
    """

    def __repr__(self) -> str:
        """Return the summary that the job printed at its end: what it found and missed, and why to trust it."""
        return in_lines({"RUN": [self.uri], **findings(self)})

    def _repr_html_(self) -> str:
        rows = [
            Html("<tr><th>{}</th><td>{}</td></tr>").format(name.capitalize(), Html("<br>").join(lines))
            for name, lines in {"run": [self.uri], **findings(self)}.items()
        ]
        return Html("<table>{}</table>").format(Html("").join(rows))

    @cached_property
    def plot(self) -> "Plots":
        """Charts by altair: `plot.probabilities()`, `.calibration()`, `.thresholds()`, `.sizes()`, `.lost()`,
        `.changes()`; and where duplicates are: `.tags()`, `.months()`, `.sites()`, `.ages()`.
        """
        require("altair", "Run.plot")
        from dupq.api.plots import Plots

        return Plots(self)

    @property
    def threshold(self) -> float:
        """The probability from which a pair may join."""
        return self.metrics["threshold"]

    @property
    def finished(self) -> datetime:
        """When the run succeeded (UTC). Raises DupqError if it has not."""
        uri = storage.join(self.uri, "_SUCCESS")
        return datetime.fromisoformat(read_as(uri, Success, "the run has not succeeded")["finished"])

    def with_titles(self, frame: Frame) -> Frame:
        """Return a table (pandas, Polars, Arrow) with the titles of its questions, and their addresses on the web.

        The questions are in the columns `site` and `question_id`, or in `site_left`, `question_id_left`, `site_right`
        and `question_id_right`. Adds or replaces the columns `title` and `link` with the same endings; a title is None
        if the question is no longer in the archive, a link if its site is not a host name. Titles are their authors'
        text: escape them. A lazy `frame` is read into memory. Raises DupqError for a table without such columns, and
        with the row of a value that is not a question.
        """
        table = collected(frame)
        names = names_of(table) or ()
        ends = [end for end in _ENDS if f"site{end}" in names and f"question_id{end}" in names]
        if not ends:
            raise DupqError(
                "with_titles: a pandas, Polars or Arrow table with the columns site and question_id expected, or with "
                f"site_left, question_id_left and so on; {type(table).__name__} has {', '.join(names) or 'no columns'}"
            )
        keys = {end: keys_in(table, end, "with_titles") for end in ends}
        all_keys = (key for of_end in keys.values() for key in of_end if key is not None)
        found = dict(self.question_rows(all_keys, ["title", "own_id", "url"]))
        columns: dict[str, list[str | None]] = {}
        for end, of_end in keys.items():
            rows = [found.get(key, {}) if key else {} for key in of_end]
            if any(row.get("own_id") for row in found.values()):
                columns[f"own_id{end}"] = [row.get("own_id") for row in rows]
            columns[f"title{end}"] = [row.get("title") for row in rows]
            columns[f"link{end}"] = [key and link(key, row.get("url")) for key, row in zip(of_end, rows, strict=True)]
        return cast(Frame, _with_columns(table, columns))

    def cluster_of(self, question: str | Key) -> Cluster:
        """Return the cluster of a question, with titles, and the pairs that join it. Raises DupqError if unknown."""
        row = row_of(self.clusters, self._key(question), self.clusters.columns)
        members = self.clusters.arrow(filter=pc.field("cluster_id") == row["cluster_id"])
        order = [("is_canonical", "descending"), ("site", "ascending"), ("question_id", "ascending")]
        rows = members.sort_by(order).to_pylist()
        keys = [(member["site"], member["question_id"]) for member in rows]
        texts = dict(self.question_rows(keys, ["title", "score", "own_id"]))
        questions = [
            Member(_label(key, text.get("own_id")), text.get("title"), text.get("score"), member["is_canonical"])
            for key, member in zip(keys, rows, strict=True)
            for text in [texts.get(key, {})]
        ]
        joining = self.pairs_among(keys)
        pairs = in_memory(self.pairs.source, joining.filter(joining["joined"]))
        kept = (row["canonical_site"], row["canonical_id"])
        canonical = _label(kept, texts.get(kept, {}).get("own_id"))
        return Cluster(row["cluster_id"], canonical, row["canonical_reason"], questions, pairs)

    def at(self, threshold: float | None = None, *, precision: float | None = None) -> Decision:
        """Return the clusters at another threshold, or at the threshold for another precision.

        docs/python.md says what may differ from a new run. Raises DupqError unless exactly one of the two is given.
        """
        return decided(self, threshold, precision)

    def changes_since(self, earlier: reader.Run) -> TableView:
        """Return what became of the clusters of any earlier run over the same archive: rows as in `changes`.

        Cluster ids are those that each run wrote. They are comparable only if --previous connects the two runs; else
        the questions say which cluster is which. Holds the clusters of both runs in memory.
        """
        if not isinstance(earlier, reader.Run):
            raise DupqError(f"changes_since: {type(earlier).__name__}; a run that dupq.open_run has opened expected")
        return in_memory(f"{self.uri} since {earlier.uri}", queries.changes_between(self, earlier))

    @cached_property
    def review(self) -> TableView:
        """The sample of pairs to judge, in the order of review.tsv, with the verdicts filled in there."""
        pairs = queries.sampled_pairs(self)
        names = [*ENDS, "title_left", "title_right", *pairs.column_names[len(ENDS) :]]
        return in_memory(f"{self.uri}, review", self.with_titles(pairs).select(names))

    def judged(self, verdicts: Any) -> Estimate:
        """Return the precision and recall of this run, from verdicts on its sample, with intervals of 95 percent.

        `verdicts` is the URI of a filled-in review.tsv, or a table (pandas, Polars, Arrow) like `review` with
        `verdict` filled in. Verdicts on other pairs are ignored. Raises DupqError for an unknown verdict.
        """
        sampled = queries.drawn_sample(self)
        if sampled is None:
            raise DupqError(f"{self.uri}: no sample to judge, because the run has no candidate pairs of the encoder")
        rows, sites = sampled
        is_file = isinstance(verdicts, (str, os.PathLike))
        people = read_verdicts(storage.absolute(verdicts), sites) if is_file else _verdicts_in(verdicts, sites)
        return estimate(rows, verdicts_of(rows, people)[0])

    @cached_property
    def encoder(self) -> TextEncoder:
        """The encoder that the run was made with."""
        return load_encoder(self.encoder_uri)

    def similar(self, title: str, body_html: str = "", k: int = 10) -> TableView:
        """Return the k questions of the run that are most like a new one, with their probabilities. See `match`."""
        body = {"body_html": [text(body_html, "similar: body_html")]} if body_html else {}
        return self.match({"title": [text(title, "similar: the title")], **body}, k)

    def match(self, texts: Any, k: int = 10, *, format: Markup = "auto") -> TableView:
        """Return for each new text the k questions of the run that are nearest to it, the nearest first.

        `texts` and `format` are as for `dupq.find_duplicates`. Each row has the id or row of the text (`text`), a
        question, the encoder's score, and the probability that the two are duplicates, as if the text were a question
        of the archive, with its evidence in words; both are null if the archive, or that question of it, is gone. A
        text without a body scores lower than with one. Near copies appear as the one question that represents them.
        Reads all embeddings, file by file, and the pairs of the questions in the result; for many calls see `matcher`.
        """
        return Matcher(self, lambda: self.encoder).match(texts, k, format=format)

    def matcher(self) -> Matcher:
        """Return an object with the same `match`, for many calls: what it reads stays in memory, 6 kB a question."""
        return HeldMatcher(self, lambda: self.encoder)

    def judge(self, left: str | Key, right: str | Key, verdict: str) -> None:
        """Write a verdict on two questions into the file that the next run reads: same, different or unsure; or undone,
        which takes back what the file says of them.

        `dupq review` and `dupq serve` write the same file. Raises DupqError for another word, for a question that the
        run does not have, and if both questions are the same.
        """
        keys = [self._key(left), self._key(right)]
        for key in keys:
            reader.row_of(self.clusters, key, ["site"])
        queries.judge(self, dict(zip(keys, map(self.titles(keys).get, keys), strict=True)), verdict)

    def explain(self, left: str | Key, right: str | Key) -> Explanation:
        """Return the evidence that two questions are duplicates."""
        return Explanation(self, lambda: self.encoder, self._key(left), self._key(right))

    def _key(self, question: str | Key) -> Key:
        """Return the key of a question, which may be named by its own id, with or without its site.

        Raises DupqError if none or several have that id, and as `key_of`.
        """
        if not isinstance(question, str) or self.archive is None or _PLAIN_KEY.fullmatch(question):
            return key_of(question)
        named = pc.field("own_id").isin([question, question.partition("/")[2]])
        rows = self.archive.arrow(["site", "question_id", "own_id"], named).to_pylist()
        keys = [
            (row["site"], row["question_id"])
            for row in rows
            if question in (row["own_id"], f"{row['site']}/{row['own_id']}")
        ]
        if len(keys) > 1:
            raise DupqError(f"{question!r}: {len(keys)} questions have this id; give site/id")
        return keys[0] if keys else key_of(question)


def open_run(uri: str | os.PathLike[str]) -> Run:
    """Open the run at `uri`, or the latest one if `uri` is a folder of runs; local or on S3.

    Raises DupqError if there is neither.
    """
    return Run(reader.open_run(uri).uri)


def open_runs(uri: str | os.PathLike[str]) -> list[Run]:
    """Open the whole runs in the folder of runs at `uri`, local or on S3, the oldest first.

    Runs that are unfinished or damaged, or that missed a gate, are left out. Raises DupqError if no run is whole.
    """
    folder = storage.absolute(uri)
    whole = [known for known in known_runs(folder, datetime.now(UTC)) if known.is_whole]
    if not whole:
        raise DupqError(f"{folder}: no whole run is here; give the --output of dupq dedup")
    return [Run(storage.join(folder, known.run_id)) for known in whole]


def _verdicts_in(given: object, sites: Sites) -> Judged:
    """Return the verdicts of a pandas, Polars or Arrow table, checked as those of a file are."""
    table = collected(given)
    names = names_of(table)
    if names is None:
        raise DupqError(f"judged: {type(table).__name__}; the address of a review.tsv, or a table like it, expected")
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise DupqError(f"judged: the table has no column '{missing[0]}'; it has {', '.join(names)}")
    lefts, rights = (keys_in(table, end, "judged") for end in ("_left", "_right"))
    words = texts(column_of(table, "verdict", "judged"), "judged", "verdict")
    rows = [
        Verdict(*left, *right, word) for left, right, word in zip(lefts, rights, words, strict=True) if left and right
    ]
    return judged(parse_verdicts(format_verdicts(rows), "judged"), sites, "judged")


def _label(key: Key, own_id: str | None) -> str:
    return f"{key[0]}/{own_id or key[1]}"


def _with_columns(frame: object, columns: dict[str, list[str | None]]) -> object:
    """Return a table of the same kind, with these columns added or replaced."""
    if isinstance(frame, pa.Table):
        kept = frame.drop_columns([name for name in columns if name in frame.column_names])
        for name, values in columns.items():
            kept = kept.append_column(name, pa.array(values, pa.string()))
        return kept
    if hasattr(frame, "with_columns"):  # Polars, which need not be installed
        make: Callable[..., Any] = type(frame)
        return frame.with_columns(make(columns, schema=dict.fromkeys(columns, str)).get_columns())
    if hasattr(frame, "assign"):
        return frame.assign(**columns)
    raise DupqError(f"with_titles: {type(frame).__name__}; a pandas, Polars or Arrow table expected")
