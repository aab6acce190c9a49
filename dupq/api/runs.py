"""A finished run for notebooks: its tables, clusters, explanations and look-ups (`dupq.open_run`)."""

import os
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import pyarrow.compute as pc

from dupq import storage
from dupq.api.inputs import key_of, text
from dupq.errors import DupqError
from dupq.extras import require
from dupq.json_files import read_as
from dupq.runs import reader
from dupq.runs.reader import Key, Question
from dupq.runs.records import Success
from dupq.runs.table_view import TableView, in_memory

if TYPE_CHECKING:
    from dupq.api.decisions import Decision
    from dupq.api.encoders import TextEncoder
    from dupq.api.explanation import Explanation
    from dupq.api.trials import Trials
    from dupq.evaluation.review import Estimate


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
        from dupq.api.titles import with_titles

        return cast(Frame, with_titles(self, frame))

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
        questions = [
            _member(key, titles.get(key), found["is_canonical"]) for key, found in zip(keys, rows, strict=True)
        ]
        joining = self.pairs_among(keys)
        pairs = in_memory(self.pairs.place, joining.filter(joining["joined"]))
        canonical = _label((row["canonical_site"], row["canonical_id"]))
        return Cluster(row["cluster_id"], canonical, row["canonical_reason"], questions, pairs)

    def at(self, threshold: float | None = None, *, precision: float | None = None) -> "Decision":
        """The clusters of another decision: of another threshold, or of the one for another precision.

        docs/python.md says what may differ from a new run. Raises DupqError unless exactly one of both is given.
        """
        from dupq.api.decisions import decided

        return decided(self, threshold, precision)

    def changes_since(self, earlier: reader.Run) -> TableView:
        """What became of the clusters of any earlier run over the same archive: rows as in `changes`.

        Ids are those that each run has written, so of runs that were not made with --previous one after the other only
        the questions tell which cluster is which. The clusters of both are in memory.
        """
        from dupq.api.changes import changes_since

        return changes_since(self, earlier)

    @cached_property
    def review(self) -> TableView:
        """The sample of pairs to be judged, in the order of review.tsv and with what is filled in there."""
        from dupq.api.judging import sample

        return sample(self)

    def judged(self, verdicts: Any) -> "Estimate":
        """The precision and recall of this run, from verdicts on its sample; each has an interval of 95 percent.

        `verdicts` is the URI of a filled-in review.tsv, or a table (pandas, Polars, Arrow) like `review`, with
        `verdict` filled in. Verdicts on other pairs are left out. Raises DupqError for what is no verdict.
        """
        from dupq.api.judging import estimated

        return estimated(self, verdicts)

    @cached_property
    def trials(self) -> "Trials":
        """Encoders trained and compared on this archive, in memory. Raises DupqError without known duplicates."""
        require("torch", "Run.trials")
        from dupq.api.trials import Trials

        return Trials(self)

    @cached_property
    def encoder(self) -> "TextEncoder":
        """The encoder that the run was made with."""
        from dupq.api.encoders import load_encoder

        return load_encoder(self.encoder_uri)

    def similar(self, title: str, body_html: str = "", k: int = 10) -> TableView:
        """The questions of the run that are most like a new one.

        Rows of source `encoder` are the k nearest by the encoder, exactly; of source `minhash` the k with the highest
        estimate of the Jaccard coefficient of the shingles, if the run kept its signatures. Of near copies only the one
        that represents them has an embedding. Each call reads all embeddings and signatures, file by file.
        """
        from dupq.api.lookup import similar

        given = text(title, "similar: the title"), text(body_html, "similar: body_html")
        return similar(self, self.encoder, given, k)

    def explain(self, left: str | Key, right: str | Key) -> "Explanation":
        """The evidence that two questions are duplicates."""
        from dupq.api.explanation import Explanation

        return Explanation(self, lambda: self.encoder, key_of(left), key_of(right))


def open_run(uri: str | os.PathLike[str]) -> Run:
    """The run at `uri`, or the last one that succeeded if `uri` is a folder of runs; local or on S3.

    Raises DupqError if there is neither.
    """
    return Run(reader.place_of(uri))


def _member(key: Key, question: Question | None, is_canonical: bool) -> Member:
    if question is None:
        return Member(_label(key), None, None, is_canonical)
    return Member(_label(key), question.title, question.score, is_canonical)


def _label(key: Key) -> str:
    return f"{key[0]}/{key[1]}"
