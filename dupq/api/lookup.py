"""What the methods of a notebook's run compute: `explain`, `review`, `judged`, `match`, `at` and `changes_since`."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.api import inputs
from dupq.api.encoders import TextEncoder, Weighed
from dupq.api.inputs import Texts, check_count, collected, column_of, keys_in, names_of, share
from dupq.clusters import identity
from dupq.clusters.components import Constraints, components, constraints, represented, with_represented
from dupq.clusters.decision import decide, histogram_of
from dupq.errors import DupqError, SettingError
from dupq.evaluation.sampling import Estimate, Judged, estimate, judged, read_verdicts, verdicts_of
from dupq.evaluation.verdicts import COLUMNS, DIFFERENT, SAME, VERDICTS_FILE, Verdict, format_verdicts, parse_verdicts
from dupq.links import known_duplicates
from dupq.neighbours.embeddings import Embeddings, embeddings_of
from dupq.neighbours.tiles import top_k
from dupq.runs.queries import drawn_sample, sampled_pairs
from dupq.runs.reader import Key, Run, TableView, ends_of, in_memory, link, row_of
from dupq.runs.scoring import ENDS, PAIR_COLUMNS, WEIGHED, NewTexts, Scorer, pairs_of, scorer_of, weigh
from dupq.tables import PAIRS, WORKLIST
from dupq.text.keys import Sites
from dupq.text.questions import question_text


@dataclass(frozen=True)
class Explanation:
    """The evidence that two questions of a run are duplicates. Each property is read when first used."""

    run: Run
    encoder: Callable[[], TextEncoder]  # opens the run's encoder
    left: Key
    right: Key

    @cached_property
    def edges(self) -> pa.Table:
        """Rows of the run's `pairs`: the pair of the two questions, if it exists, and the chain that joins them.

        Questions of one cluster have a chain: of all paths of joined pairs, the one with the highest product of
        probabilities. No rows mean that there is no evidence for the two.
        """
        members = self._members()
        pairs = self.run.pairs_among({self.left, self.right} | members)
        graph = nx.Graph()
        rows: dict[frozenset[Key], int] = {}
        for row, pair in enumerate(pairs.to_pylist()):
            rows[frozenset(ends_of(pair))] = row
            if pair["joined"]:
                graph.add_edge(*ends_of(pair), weight=-np.log(max(pair["probability"], 1e-9)))
        direct = frozenset((self.left, self.right))
        chosen = [rows[direct]] if direct in rows else []
        if members and direct <= set(graph) and nx.has_path(graph, self.left, self.right):
            chain = nx.shortest_path(graph, self.left, self.right, weight="weight")
            chosen += [rows[frozenset(ends)] for ends in pairwise(chain)]
        return pairs.take(pa.array(list(dict.fromkeys(chosen)), pa.int64()))

    @cached_property
    def evidence(self) -> dict[str, float]:
        """What each kind of evidence added to the log-odds of the pair in the run.

        The values sum to the log-odds; "a teacher" is what no other evidence explains. Raises DupqError if the two are
        not a candidate pair of the encoder, or if a file that this needs is gone.
        """
        added = weigh(self.run, [(self.left, self.right)])[0]
        if np.isnan(added).any():
            raise DupqError(f"{self.run.uri}: one of the two questions is no longer in the archive")
        return dict(zip(WEIGHED, added.tolist(), strict=True))

    @cached_property
    def shared_shingles(self) -> list[str]:
        """The shingles of words that both questions have, in the left one's order.

        Near duplicates are found by them, or by shingles of letters if the texts are only titles.
        """
        settings = self.run.settings
        size = settings.near_duplicates.shingle_size
        left, right = (_shingles(question_text(*text, settings.text)[1], size) for text in self._texts)
        return [shingle for shingle in left if shingle in right]

    @cached_property
    def weighed(self) -> Weighed:
        """The score of the two by the run's encoder, and what each word adds to it.

        Near copies get a score here too, though the run compared only their shingles.
        """
        return self.encoder().weighed(*self._texts)

    @cached_property
    def _texts(self) -> list[tuple[str, str]]:
        """The title and the body of both questions."""
        rows = [row_of(self.run.questions, key, ["title", "body_html"]) for key in (self.left, self.right)]
        return [(row["title"], row["body_html"]) for row in rows]

    def _members(self) -> set[Key]:
        """Return the questions of the cluster that both are in; none if they are in different clusters."""
        clusters = self.run.clusters
        left, right = (row_of(clusters, key, ["cluster_id"])["cluster_id"] for key in (self.left, self.right))
        if left != right:
            return set()
        rows = clusters.arrow(["site", "question_id"], pc.field("cluster_id") == left).to_pylist()
        return {(row["site"], row["question_id"]) for row in rows}


def _shingles(text: str, size: int) -> dict[str, None]:
    """Return the distinct shingles of a text in their order; a text of fewer than `size` words is one shingle."""
    words = text.split(" ") if text else []
    last = max(1, len(words) - size + 1) if words else 0
    return dict.fromkeys(" ".join(words[start : start + size]) for start in range(last))


_JUDGING_SCHEMA = pa.schema(
    [
        *(WORKLIST.field(name) for name in (*ENDS, "title_left", "title_right")),
        PAIRS.field("joined"),
        pa.field("pairs", pa.float64(), nullable=False),  # candidate pairs of the run that this one represents
        pa.field("verdict", pa.string()),  # same, different or unsure, as in review.tsv; null: not judged yet
    ]
)


def sample(run: Run) -> TableView:
    """Return the sample of pairs to judge. See Run.review."""
    pairs = sampled_pairs(run)
    titles = run.titles(key for pair in pairs for key in (pair.left, pair.right))
    sides = [[pair.left for pair in pairs], [pair.right for pair in pairs]]
    columns = [
        *([key[index] for key in side] for side in sides for index in (0, 1)),
        *([titles.get(key) for key in side] for side in sides),
        [pair.joined for pair in pairs],
        [pair.pairs for pair in pairs],
        [pair.verdict or None for pair in pairs],
    ]
    return in_memory(f"{run.uri}, review", pa.table(columns, schema=_JUDGING_SCHEMA))


def estimated(run: Run, verdicts: Any) -> Estimate:
    """Return the precision and recall that verdicts on the run's sample estimate. See Run.judged."""
    sampled = drawn_sample(run)
    if sampled is None:
        raise DupqError(f"{run.uri}: no sample to judge, because the run has no candidate pairs of the encoder")
    rows, sites = sampled
    is_file = isinstance(verdicts, (str, os.PathLike))
    people = read_verdicts(storage.absolute(verdicts), sites) if is_file else _verdicts_in(collected(verdicts), sites)
    return estimate(rows, verdicts_of(rows, people)[0])


def _verdicts_in(table: object, sites: Sites) -> Judged:
    """Return the verdicts of a pandas, Polars or Arrow table, checked as those of a file are."""
    names = names_of(table)
    if names is None:
        raise DupqError(f"judged: {type(table).__name__}; the address of a review.tsv, or a table like it, expected")
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise DupqError(f"judged: the table has no column '{missing[0]}'; it has {', '.join(names)}")
    left, right = (keys_in(table, end, "judged") for end in ("_left", "_right"))
    words = inputs.texts(column_of(table, "verdict", "judged"), "judged", "verdict")
    rows = [
        Verdict(*first, *last, word) for first, last, word in zip(left, right, words, strict=True) if first and last
    ]
    return judged(parse_verdicts(format_verdicts(rows), "judged"), sites, "judged")


def _matches(text: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            pa.field("text", text, nullable=False),  # the text's id or row
            pa.field("rank", pa.int64(), nullable=False),  # 1 = nearest
            pa.field("site", pa.string(), nullable=False),
            pa.field("question_id", pa.int64(), nullable=False),
            pa.field("title", pa.string()),  # null: no longer in the archive
            pa.field("link", pa.string()),
            pa.field("probability", pa.float32()),  # that both are duplicates; null: what the run kept does not tell
            pa.field("similarity", pa.float32(), nullable=False),  # score by the encoder
        ]
    )


def matched(run: Run, encoder: TextEncoder, texts: Texts, k: int) -> TableView:
    """Return the k questions of a run that are nearest to each text. See Run.match."""
    check_count(k, "match: k=")
    sites, count = Sites(sorted(run.metrics["sites"])), len(texts.titles)
    queries = Embeddings(np.arange(-count, 0), *encoder.encode_whole(texts.titles, texts.bodies))
    blocks = (embeddings_of(table, sites, run.embeddings.source) for table in run.embeddings.files())
    nearest = top_k(queries, blocks, max(k, run.settings.neighbours.k), encoder.measure)
    names, numbers = sites.unpack(nearest.neighbours)
    probabilities = pa.nulls(len(numbers), pa.float32())
    if len(numbers):
        scorer = scorer_of(run, sites, numbers.tolist())
        if scorer.is_complete:
            scored = scorer.score_new(nearest, NewTexts(texts.titles, texts.bodies))
            probabilities = pa.array(scored, from_pandas=True)
    keys = list(zip(names, numbers.tolist(), strict=True))
    titles = run.titles(keys)
    columns = [
        texts.ids.take(pa.array(nearest.queries + count)),
        pa.array(nearest.ranks, pa.int64()),
        pa.array(names, pa.string()),
        pa.array(numbers),
        pa.array(map(titles.get, keys), pa.string()),
        pa.array([link(key) for key in keys], pa.string()),
        probabilities,
        pa.array(nearest.similarities),
    ]
    table = pa.table(columns, schema=_matches(texts.ids.type))
    return in_memory(f"{run.uri}, matches", table.filter(pc.less_equal(table["rank"], k)))


def changes_since(run: Run, earlier: Run) -> TableView:
    """Return what became of the clusters of an earlier run. See Run.changes_since."""
    if not isinstance(earlier, Run):
        raise DupqError(f"changes_since: {type(earlier).__name__}; a run that dupq.open_run has opened expected")
    sites = Sites([*run.metrics["sites"], *earlier.metrics["sites"]])
    now, before = (identity.read_clusters(each.clusters.source, sites) for each in (run, earlier))
    return in_memory(f"{run.uri} since {earlier.uri}", identity.changes(now, before, sites))


_NO_PAIRS = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class Decision:
    """The clusters of a run at another threshold."""

    threshold: float
    pairs: int  # the encoder's pairs at or above the threshold
    expected_precision: float  # of these pairs
    clusters: TableView  # the questions of clusters of two and more: site, question_id, cluster_id, cluster_size
    changes: TableView  # what became of the run's own clusters, as in the run's table `changes`
    is_complete: bool  # False: pairs that no question lists counted as the least likely; see docs/python.md


def decided(run: Run, threshold: float | None, precision: float | None) -> Decision:
    """Return the decision at a threshold, or at the one for a precision. See Run.at."""
    if (threshold is None) == (precision is None):
        raise SettingError("at: give a threshold or a precision, not both")
    value = share(threshold if threshold is not None else precision, "at: ")
    sites = Sites(sorted(run.metrics["sites"]))
    table = run.pairs.arrow(PAIR_COLUMNS)
    near = table.filter(pc.is_in(table["source"], pa.array(["exact", "near_duplicate"])))
    members, representatives = components(sites.pack_pairs(near, "pairs"))
    pairs = pairs_of(table, sites)
    histogram = histogram_of(pairs.probabilities)
    chosen = histogram.choose(value) if threshold is None else histogram.above(value)
    scorer, cut = Scorer(run, sites, pairs), chosen["threshold"]
    held = _constraints(run, sites, members, representatives)
    solved = decide(pairs.keys, pairs.probabilities, held.joined, cut, scorer.score, held.apart)
    before = identity.read_clusters(run.clusters.source, sites)
    keys, clusters = with_represented((members, representatives), solved)
    ids = identity.cluster_ids(identity.Clustering(keys, clusters), before)
    changed = identity.changes(identity.Clustering(keys, ids), before, sites)
    return Decision(
        cut,
        int((pairs.probabilities >= np.float32(cut)).sum()),
        chosen["expected_precision"],
        in_memory(f"{run.uri} at {cut}", _clusters_table(keys, ids, sites)),
        in_memory(f"{run.uri} at {cut}", changed),
        scorer.is_complete,
    )


def _constraints(run: Run, sites: Sites, members: np.ndarray, representatives: np.ndarray) -> Constraints:
    """Return the pairs of representatives that the run's verdicts and known duplicates join and keep apart."""
    links, kept = run.manifest["inputs"].get("links"), storage.join(run.uri, VERDICTS_FILE)
    is_used = run.settings.clusters.known_links == "use"
    known = known_duplicates(links, sites) if is_used and links is not None else _NO_PAIRS
    judged = read_verdicts(kept if storage.exists(kept) else None, sites)
    rows = run.clusters.arrow(["site", "question_id"])
    archive = np.sort(sites.pack_columns(rows["site"], rows["question_id"], run.clusters.source))
    people = judged.of(SAME), known, judged.of(DIFFERENT)
    return constraints(*people, archive, lambda keys: represented(keys, members, representatives))


def _clusters_table(keys: np.ndarray, ids: np.ndarray, sites: Sites) -> pa.Table:
    site, question_id = sites.columns(keys)
    _, indices, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    columns = {
        "site": site,
        "question_id": question_id,
        "cluster_id": sites.labels(ids),
        "cluster_size": sizes[indices],
    }
    return pa.table(columns)
