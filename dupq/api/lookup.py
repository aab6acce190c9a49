"""What a notebook's run answers to `explain` and `at`: the evidence of two questions, and another decision."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.api.encoders import TextEncoder, Weighed
from dupq.api.inputs import share
from dupq.clusters import identity
from dupq.clusters.components import Constraints, components, constraints, represented, with_represented
from dupq.clusters.decision import decide, histogram_of
from dupq.errors import DupqError, SettingError
from dupq.evaluation.sampling import read_verdicts
from dupq.evaluation.verdicts import DIFFERENT, SAME, VERDICTS_FILE
from dupq.links import links_table
from dupq.runs.reader import Key, Run, ends_of, row_of
from dupq.runs.scoring import PAIR_COLUMNS, WEIGHED, Scorer, pairs_of, weigh
from dupq.runs.views import TableView, in_memory
from dupq.system import require
from dupq.text.keys import Sites, pairs_in
from dupq.text.questions import question_text

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True, repr=False)
class Explanation:
    """The evidence that two questions of a run are duplicates. Each property is read when first used."""

    run: Run
    encoder: Callable[[], TextEncoder]  # opens the run's encoder
    left: Key
    right: Key

    def __repr__(self) -> str:
        """Return the two questions and the pairs between them."""
        rows = self.edges.to_pylist()
        lines = [
            "  {} = {}  {}, probability {:.2f}{}".format(
                *(f"{site}/{number}" for site, number in ends_of(row)),
                row["source"].replace("_", " "),
                row["probability"],
                ", joined" * row["joined"],
            )
            for row in rows
        ]
        head = "why {}/{} and {}/{}".format(*self.left, *self.right)
        return "\n".join([head, *(lines or ["  no evidence"])])

    def plot(self) -> "alt.Chart":
        """Return a chart of `evidence`. Raises as that does."""
        require("altair", "Explanation.plot")
        from dupq.api.plots import evidence_chart

        return evidence_chart(self.evidence)

    @cached_property
    def edges(self) -> pa.Table:
        """Rows of the run's `pairs`: the pair of the two questions, if it exists, and the chain that joins them.

        Questions of one cluster have a chain: of all paths of joined pairs, the one with the highest product of
        probabilities. No rows mean that there is no evidence for the two.
        """
        clusters, members = self.run.clusters, set[Key]()
        left, right = (row_of(clusters, key, ["cluster_id"])["cluster_id"] for key in (self.left, self.right))
        if left == right:
            rows_of_cluster = clusters.arrow(["site", "question_id"], pc.field("cluster_id") == left).to_pylist()
            members = {(row["site"], row["question_id"]) for row in rows_of_cluster}
        pairs = self.run.pairs_among({self.left, self.right} | members)
        graph, both, chosen = nx.Graph(), {self.left, self.right}, []
        for row, pair in enumerate(pairs.to_pylist()):
            if both == set(ends_of(pair)):
                chosen = [row]
            if pair["joined"]:
                graph.add_edge(*ends_of(pair), weight=-np.log(max(pair["probability"], 1e-9)), row=row)
        if both <= set(graph) and nx.has_path(graph, self.left, self.right):
            chain = nx.shortest_path(graph, self.left, self.right, weight="weight")
            chosen += [graph.edges[ends]["row"] for ends in pairwise(chain)]
        return pairs.take(pa.array(list(dict.fromkeys(chosen)), pa.int64()))

    @cached_property
    def evidence(self) -> dict[str, float]:
        """What each kind of evidence added to the log-odds of the pair in the run.

        The values sum to the log-odds; "a reranker's reading" is what no other evidence explains. Raises DupqError if
        the two are not a candidate pair of the encoder, or if a file that this needs is gone.
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


def _shingles(text: str, size: int) -> dict[str, None]:
    """Return the distinct shingles of a text in their order; a text of fewer than `size` words is one shingle."""
    words = text.split(" ") if text else []
    last = max(1, len(words) - size + 1) if words else 0
    return dict.fromkeys(" ".join(words[start : start + size]) for start in range(last))


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
    _, indices, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    names = ["site", "question_id", "cluster_id", "cluster_size"]
    clustered = pa.table([*sites.columns(keys), sites.labels(ids), sizes[indices]], names=names)
    return Decision(
        cut,
        int((pairs.probabilities >= np.float32(cut)).sum()),
        chosen["expected_precision"],
        in_memory(f"{run.uri} at {cut}", clustered),
        in_memory(f"{run.uri} at {cut}", changed),
        scorer.is_complete,
    )


def _constraints(run: Run, sites: Sites, members: np.ndarray, representatives: np.ndarray) -> Constraints:
    """Return the pairs of representatives that the run's verdicts and known duplicates join and keep apart."""
    links, kept = run.input("links"), storage.join(run.uri, VERDICTS_FILE)
    is_used = run.settings.clusters.known_links == "use"
    known = pairs_in(links_table(links if is_used else None, sites.names))
    judged = read_verdicts(kept if storage.exists(kept) else None, sites)
    rows = run.clusters.arrow(["site", "question_id"])
    archive = np.sort(sites.pack_columns(rows["site"], rows["question_id"], run.clusters.source))
    people = judged.of(SAME), known, judged.of(DIFFERENT)
    return constraints(*people, archive, lambda keys: represented(keys, members, representatives))
