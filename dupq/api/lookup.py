"""What a notebook asks a run: questions like a new text (`Run.similar`), the evidence that two are duplicates
(`Run.explain`), pairs to be judged, and what verdicts on them tell (`Run.review`, `Run.judged`); the clusters at
another threshold (`Run.at`), and what became of clusters between two runs (`Run.changes_since`).
"""

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
from dupq.api.encoders import TextEncoder, Weighed
from dupq.api.inputs import Given, check_count, collected, column_of, keys_in, names_of, share, texts
from dupq.clusters import identity
from dupq.clusters.components import Constraints, components, constraints, represented, with_represented
from dupq.clusters.decision import SCORED_SIZE, decide, histogram_of
from dupq.errors import DupqError, SettingError
from dupq.evaluation.sampling import Estimate, Judged, estimate, judged, read_verdicts, verdicts_of
from dupq.evaluation.verdicts import COLUMNS, DIFFERENT, SAME, VERDICTS_FILE, Verdict, format_verdicts, parse_verdicts
from dupq.links import known_duplicates
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.tiles import top_k
from dupq.runs.queries import asked, drawn
from dupq.runs.question_tables import embeddings_of
from dupq.runs.reader import Key, Run, TableView, ends_of, in_memory, link
from dupq.runs.scoring import PAIR_COLUMNS, WEIGHED, NewTexts, Scorer, ends, pairs_of, scorer_of, weigh
from dupq.settings import config
from dupq.text.keys import Sites
from dupq.text.questions import question_text


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
        added = weigh(self.run, [(self.left, self.right)])[0]
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
    def _texts(self) -> list[tuple[str, str]]:
        """The title and the body of both."""
        questions = self.run.questions
        found = []
        for site, number in (self.left, self.right):
            is_this = (pc.field("site") == site) & (pc.field("question_id") == number)
            rows = questions.arrow(["title", "body_html"], is_this).to_pylist()
            if not rows:
                raise DupqError(f"{site}/{number}: no such question in {questions.place}")
            found.append((rows[0]["title"], rows[0]["body_html"]))
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


# The clusters of a finished run at another threshold, and what became of clusters between two runs.


def changes_since(run: Run, earlier: Run) -> TableView:
    """See Run.changes_since."""
    if not isinstance(earlier, Run):
        raise DupqError(f"changes_since: {type(earlier).__name__}; a run that dupq.open_run has opened expected")
    sites = Sites([*run.metrics["sites"], *earlier.metrics["sites"]])
    now, then = (identity.read_clusters(each.clusters.place, sites) for each in (run, earlier))
    return in_memory(f"{run.uri} since {earlier.uri}", identity.changes(now, then, sites))


_NEAR = ["exact", "near_duplicate"]
_NO_PAIRS = np.zeros((0, 2), np.int64)


@dataclass(frozen=True)
class Decision:
    """The clusters of a run at another threshold."""

    threshold: float
    pairs: int  # of the encoder, from the threshold on
    expected_precision: float  # of these
    clusters: TableView  # the questions of clusters of two and more: site, question_id, cluster_id, cluster_size
    changes: TableView  # what became of the run's own clusters, as in the run's table `changes`
    is_complete: bool  # False: pairs that no question lists counted as the least likely; see docs/python.md


def decided(run: Run, threshold: float | None, precision: float | None) -> Decision:
    """The decision at a threshold, or at the one for a precision. See Run.at."""
    if (threshold is None) == (precision is None):
        raise SettingError("at: give a threshold or a precision, not both")
    wanted = share(threshold if threshold is not None else precision, "at: ")
    sites = Sites(sorted(run.metrics["sites"]))
    table = run.pairs.arrow(PAIR_COLUMNS)
    near = ends(table.filter(pc.is_in(table["source"], pa.array(_NEAR))), sites)
    members, representatives = components(near)
    pairs = pairs_of(table, sites)
    histogram = histogram_of(pairs.probabilities)
    chosen = histogram.choose(wanted) if threshold is None else histogram.above(wanted)
    scorer = Scorer(run, sites, pairs)
    cut = chosen["threshold"]
    held = _constraints(run, sites, members, representatives)
    solved = decide(pairs.keys, pairs.probabilities, held.joined, cut, SCORED_SIZE, scorer.score, held.apart)
    then = identity.read_clusters(run.clusters.place, sites)
    keys, clusters = with_represented((members, representatives), solved)
    ids = identity.cluster_ids(identity.Grouping(keys, clusters), then).of(clusters)
    changed = identity.changes(identity.Grouping(keys, ids), then, sites)
    return Decision(
        cut,
        int(chosen["pairs"]),
        chosen["expected_precision"],
        in_memory(f"{run.uri} at {cut}", _clusters_table(keys, ids, sites)),
        in_memory(f"{run.uri} at {cut}", changed),
        scorer.is_complete,
    )


def _constraints(run: Run, sites: Sites, members: np.ndarray, representatives: np.ndarray) -> Constraints:
    """What the run's verdicts and the known duplicates that it used hold together and apart, of representatives."""
    links, kept = run.manifest["inputs"].get("links"), storage.join(run.uri, VERDICTS_FILE)
    is_used = run.config["clusters"]["known_links"] == "use"
    known = known_duplicates(links, sites) if is_used and links is not None else _NO_PAIRS
    judged = read_verdicts(kept if storage.exists(kept) else None, sites)
    rows = run.clusters.arrow(["site", "question_id"])
    archive = np.sort(sites.pack_columns(rows["site"], rows["question_id"], run.clusters.place))
    said = judged.pairs(SAME), known, judged.pairs(DIFFERENT)
    return constraints(*said, archive, lambda keys: represented(keys, members, representatives))


def _clusters_table(keys: np.ndarray, ids: np.ndarray, sites: Sites) -> pa.Table:
    names, numbers = sites.unpack(keys)
    _, places, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    return pa.table(
        {
            "site": pa.array(names, pa.string()),
            "question_id": numbers,
            "cluster_id": pa.array([sites.label(key) for key in ids.tolist()], pa.string()),
            "cluster_size": sizes[places],
        }
    )
