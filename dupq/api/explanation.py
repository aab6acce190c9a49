"""The evidence that two questions of a run are duplicates: `Run.explain`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.api.encoders import TextEncoder, Weighed
from dupq.errors import DupqError
from dupq.runs.reader import Key, Run, ends_of
from dupq.runs.table_view import TableView
from dupq.settings import config
from dupq.text.questions import question_text


class _Text(NamedTuple):
    title: str
    body_html: str


@dataclass(frozen=True)
class Explanation:
    """Two questions of a run. Each part is read lazily."""

    run: Run
    encoder: Callable[[], TextEncoder]  # opens the run's
    left: Key
    right: Key

    @cached_property
    def edges(self) -> pa.Table:
        """Rows of the run's `pairs`: that of the two questions, if there is one, and the chain that joins them.

        The chain is there if they are in one cluster: of all chains of joined pairs the one whose probabilities have
        the highest product. No rows mean that nothing speaks for the two.
        """
        members = self._members()
        rows = self.run.pairs_among({self.left, self.right} | members)
        graph = nx.Graph()
        places: dict[frozenset[Key], int] = {}
        for place, row in enumerate(rows.to_pylist()):
            ends = ends_of(row)
            places[frozenset(ends)] = place
            if row["joined"]:
                graph.add_edge(*ends, weight=-np.log(max(row["probability"], 1e-9)))
        chosen = [places[ends] for ends in [frozenset((self.left, self.right))] if ends in places]
        if members and {self.left, self.right} <= set(graph) and nx.has_path(graph, self.left, self.right):
            chain = nx.shortest_path(graph, self.left, self.right, weight="weight")
            chosen += [places[frozenset(ends)] for ends in pairwise(chain)]
        return rows.take(pa.array(list(dict.fromkeys(chosen)), pa.int64()))

    @cached_property
    def shared_shingles(self) -> list[str]:
        """The words in a row, as the lexical filter compares them, that both have; in the order of the left one."""
        settings = config.from_dict(self.run.config)
        size = settings.near_duplicates.shingle_size
        left, right = (_shingles(question_text(*text, settings.text)[1], size) for text in self._texts)
        return [shingle for shingle in left if shingle in right]

    @cached_property
    def weighed(self) -> Weighed:
        """The score of both by the run's encoder, and what each word of its bags adds to that.

        Near copies have a score here too, though the run compared them by their shingles only.
        """
        return self.encoder().weighed(*self._texts)

    @cached_property
    def _texts(self) -> list[_Text]:
        questions = self.run.questions
        found = []
        for site, number in (self.left, self.right):
            is_this = (pc.field("site") == site) & (pc.field("question_id") == number)
            rows = questions.arrow(["title", "body_html"], is_this).to_pylist()
            if not rows:
                raise DupqError(f"{site}/{number}: no such question in {questions.place}")
            found.append(_Text(rows[0]["title"], rows[0]["body_html"]))
        return found

    def _members(self) -> set[Key]:
        """The questions of the cluster of both; none if they are in different ones."""
        clusters = self.run.clusters
        ids = [_cluster_id(clusters, key) for key in (self.left, self.right)]
        if ids[0] != ids[1]:
            return set()
        rows = clusters.arrow(["site", "question_id"], pc.field("cluster_id") == ids[0]).to_pylist()
        return {(row["site"], row["question_id"]) for row in rows}


def _cluster_id(clusters: TableView, key: Key) -> str:
    is_this = (pc.field("site") == key[0]) & (pc.field("question_id") == key[1])
    rows = clusters.arrow(["cluster_id"], is_this).to_pylist()
    if not rows:
        raise DupqError(f"{key[0]}/{key[1]}: no such question in {clusters.place}")
    return str(rows[0]["cluster_id"])


def _shingles(text: str, size: int) -> dict[str, None]:
    """The distinct shingles of a stored text; fewer words than `size` make one."""
    words = text.split(" ") if text else []
    last = max(1, len(words) - size + 1) if words else 0
    return dict.fromkeys(" ".join(words[start : start + size]) for start in range(last))
