"""What a notebook asks a run: questions like a new text (`Run.similar`), the evidence that two are duplicates
(`Run.explain`), pairs to be judged, and what verdicts on them tell (`Run.review`, `Run.judged`).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.api.encoders import TextEncoder, Weighed
from dupq.api.inputs import Given, check_count, collected, column_of, keys_in, names_of, texts
from dupq.errors import DupqError
from dupq.evaluation.sampling import Estimate, Judged, estimate, judged, read_verdicts, verdicts_of
from dupq.evaluation.verdicts import COLUMNS, Verdict, format_verdicts, parse_verdicts
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.tiles import top_k
from dupq.runs import queries
from dupq.runs.queries import asked, drawn
from dupq.runs.question_tables import embeddings_of
from dupq.runs.reader import Key, Run, ends_of, link
from dupq.runs.scoring import WEIGHED, NewTexts, scorer_of
from dupq.runs.table_view import TableView, in_memory
from dupq.settings import config
from dupq.text.keys import Sites
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
    def evidence(self) -> dict[str, float]:
        """What each kind of evidence adds to the log-odds of the probability of the pair, as the run decided it.

        The sum is their log-odds; "a teacher" is what no other evidence explains. Raises DupqError where the two are
        no candidate pair of the encoder, or what tells it is gone.
        """
        sites = Sites(sorted(self.run.metrics["sites"]))
        pair = np.sort(
            [[int(sites.pack(site, np.array([number]), "explain")[0]) for site, number in (self.left, self.right)]]
        )
        scorer = scorer_of(self.run, sites, (self.left[1], self.right[1]))
        if not (scorer.pairs.keys == pair).all(axis=1).any():
            raise DupqError(f"{self.left}, {self.right}: no candidate pair of the encoder, so no evidence was weighed")
        added = scorer.weigh(pair)[0]
        if np.isnan(added).any():
            raise DupqError(f"{self.run.uri}: the encoder, the questions or the calibration of the run are gone")
        return dict(zip(WEIGHED, added.tolist(), strict=True))

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


_JUDGING_SCHEMA = pa.schema(
    [
        pa.field("site_left", pa.string(), nullable=False),
        pa.field("question_id_left", pa.int64(), nullable=False),
        pa.field("site_right", pa.string(), nullable=False),
        pa.field("question_id_right", pa.int64(), nullable=False),
        pa.field("title_left", pa.string()),  # null: no longer in the archive
        pa.field("title_right", pa.string()),
        pa.field("joined", pa.bool_(), nullable=False),
        pa.field("pairs", pa.float64(), nullable=False),  # candidate pairs of the run that this one counts for
        pa.field("verdict", pa.string()),  # same, different or unsure, as in review.tsv; null: not judged yet
    ]
)


def sample(run: Run) -> TableView:
    """See Run.review."""
    pairs = asked(run)
    titles = run.titles(key for pair in pairs for key in (pair.left, pair.right))
    sides = [[pair.left for pair in pairs], [pair.right for pair in pairs]]
    columns = [
        *([key[part] for key in side] for side in sides for part in (0, 1)),
        *([titles[key].title if key in titles else None for key in side] for side in sides),
        [pair.joined for pair in pairs],
        [pair.pairs for pair in pairs],
        [pair.verdict or None for pair in pairs],
    ]
    return in_memory(f"{run.uri}, review", pa.table(columns, schema=_JUDGING_SCHEMA))


def estimated(run: Run, verdicts: Any) -> Estimate:
    """See Run.judged."""
    found = drawn(run)
    if found is None:
        raise DupqError(f"{run.uri}: no sample to judge, because the run has no candidate pairs of the encoder")
    rows, sites = found
    is_file = isinstance(verdicts, (str, os.PathLike))
    given = read_verdicts(storage.absolute(verdicts), sites) if is_file else _of_table(verdicts, sites)
    return estimate(rows, verdicts_of(rows, given.left, given.right, given.verdicts)[0])


def _of_table(given: object, sites: Sites) -> Judged:
    """The verdicts of a pandas, Polars or Arrow table, checked as those of a file are."""
    table = collected(given)
    names = names_of(table)
    if names is None:
        raise DupqError(f"judged: {type(table).__name__}; the address of a review.tsv, or a table like it, expected")
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise DupqError(f"judged: the table has no column '{missing[0]}'; it has {', '.join(names)}")
    left, right = (keys_in(table, end, "judged") for end in ("_left", "_right"))
    words = texts(column_of(table, "verdict", "judged"), "judged", "verdict")
    rows = [Verdict(*one, *other, word) for one, other, word in zip(left, right, words, strict=True) if one and other]
    return judged(parse_verdicts(format_verdicts(rows), "judged"), sites, "judged")


def judge(run: Run, left: Key, right: Key, verdict: str) -> None:
    """See Run.judge."""
    titles = run.titles([left, right])
    queries.judge(run, {key: titles[key].title if key in titles else None for key in (left, right)}, verdict)


def _matches(text: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            pa.field("text", text, nullable=False),  # its id, or its row
            pa.field("rank", pa.int64(), nullable=False),  # 1 = most alike
            pa.field("site", pa.string(), nullable=False),
            pa.field("question_id", pa.int64(), nullable=False),
            pa.field("title", pa.string()),  # null: no longer in the archive
            pa.field("link", pa.string()),
            pa.field("probability", pa.float32()),  # that both are duplicates; null: the run has not kept what tells it
            pa.field("similarity", pa.float32(), nullable=False),  # score by the encoder
        ]
    )


def matched(run: Run, encoder: TextEncoder, given: Given, k: int) -> TableView:
    """Return the k questions of a run that each of some texts is nearest to. See Run.match."""
    check_count(k, "match: k=")
    sites, count = Sites(sorted(run.metrics["sites"])), len(given.titles)
    queries = Embeddings(np.arange(-count, 0), *encoder.encode_whole(given.titles, given.bodies))
    blocks = (embeddings_of(table, sites, run.embeddings.place) for table in run.embeddings.files())
    found = top_k(queries, blocks, max(k, int(run.config["neighbours"]["k"])), encoder.measure)
    names, numbers = sites.unpack(found.neighbours)
    probabilities = pa.nulls(len(numbers), pa.float32())
    if len(numbers):
        scorer = scorer_of(run, sites, numbers.tolist())
        if scorer.is_complete:
            probabilities = pa.array(scorer.score_new(found, NewTexts(given.titles, given.bodies)))
    keys = list(zip(names, numbers.tolist(), strict=True))
    titles = run.titles(keys)
    columns = [
        given.ids.take(pa.array(found.queries + count)),
        pa.array(found.ranks, pa.int64()),
        pa.array(names, pa.string()),
        pa.array(numbers),
        pa.array([titles[key].title if key in titles else None for key in keys], pa.string()),
        pa.array([link(key) for key in keys], pa.string()),
        probabilities,
        pa.array(found.similarities),
    ]
    table = pa.table(columns, schema=_matches(given.ids.type))
    return in_memory(f"{run.uri}, matches", table.filter(pc.less_equal(table["rank"], k)))
