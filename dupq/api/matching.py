"""New texts among the questions of a run: `Run.match`, and `Run.matcher` for many calls."""

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa

from dupq.api.encoders import TextEncoder
from dupq.api.inputs import Texts, read_texts, whole
from dupq.clusters.decision import Titled, Wording
from dupq.errors import SettingError
from dupq.neighbours.embeddings import Embeddings, Neighbours, embeddings_of
from dupq.neighbours.tiles import Block, block, nearest_in_blocks
from dupq.runs.reader import KEY, Run, TableRow, link
from dupq.runs.scoring import PAIR_COLUMNS, QUESTION, Scorer, new_questions, pairs_of, scorer_of
from dupq.runs.views import TableView, in_memory
from dupq.tables import CLUSTERS, WORKLIST
from dupq.text.keys import Sites
from dupq.text.tokens import Markup

_SHOWN = ["title", "own_id", "url"]  # of a question
_RANK, _SITE, _ID = WORKLIST.field("rank"), *map(CLUSTERS.field, KEY)  # rank 1: the nearest
_SCORES = [
    pa.field("probability", pa.float32()),  # that both are duplicates; null: what the run kept does not tell
    pa.field("similarity", pa.float32(), nullable=False),  # score by the encoder
    pa.field("evidence", pa.string()),  # for or against it, in words; null as the probability
]


class Matcher:
    """Finds the questions of a run that are nearest to new texts. Reads what it needs for each call."""

    def __init__(self, run: Run, encoder: Callable[[], TextEncoder]) -> None:
        """`encoder` opens the run's encoder."""
        self._run, self._encoder, self._sites = run, encoder, Sites(sorted(run.metrics["sites"]))

    def match(self, texts: object, k: int = 10, *, format: Markup = "auto") -> TableView:
        """Return for each new text the k questions of the run that are nearest to it; see `Run.match`."""
        new = read_texts(texts, format, "match")
        k = whole(k, "match: k=")
        if k < 1:
            raise SettingError(f"match: k={k}; at least 1 expected")
        return in_memory(f"{self._run.uri}, matches", self.matches(new, k))

    def matches(self, new: Texts, k: int) -> pa.Table:
        """Return the same as a table, for texts that are read."""
        encoder, count = self._encoder(), len(new.titles)
        queries = Embeddings(np.arange(-count, 0), *encoder.encode_whole(new.titles, new.bodies))
        most = max(k, self._run.settings.neighbours.k)
        nearest = nearest_in_blocks(queries, self._blocks(), most, encoder.measure)
        names, numbers = self._sites.unpack(nearest.neighbours)
        keys = list(zip(names, numbers.tolist(), strict=True))
        texts = dict(self._run.question_rows(keys, _SHOWN))
        shown = [texts.get(key, {}) for key in keys]
        columns = {
            pa.field("text", new.ids.type, nullable=False): new.ids.take(pa.array(nearest.queries + count)),
            _RANK: pa.array(nearest.ranks, pa.int64()),
            _SITE: names,
            _ID: numbers,
            pa.field("own_id", pa.string()): [row.get("own_id") for row in shown],
            pa.field("title", pa.string()): [row.get("title") for row in shown],
            pa.field("link", pa.string()): [link(key, row.get("url")) for key, row in zip(keys, shown, strict=True)],
            **dict(zip(_SCORES, self._scores(nearest, new, shown, k), strict=True)),
        }
        if not any(row.get("own_id") for row in shown):
            columns = {field: column for field, column in columns.items() if field.name != "own_id"}
        table = pa.table(list(columns.values()), schema=pa.schema(list(columns)))
        return table.filter(pa.array(nearest.ranks <= k))

    def _scores(
        self, nearest: Neighbours, new: Texts, shown: list[TableRow], k: int
    ) -> tuple[pa.Array, np.ndarray, list[str | None]]:
        """Return the columns _SCORES; the evidence up to rank `k`."""
        probabilities, evidence = np.full(len(shown), np.nan, np.float32), list[str | None]([None] * len(shown))
        scorer = self._scorer(nearest)
        if scorer is not None and scorer.is_complete:
            scored, are_there = scorer.score_new(nearest, new_questions(new.titles, new.bodies))
            probabilities[are_there] = scored["probability"].to_numpy()
            settings = self._run.settings
            archive = scorer.rarities, self._run.metrics["questions"], settings.neighbours.k
            wording = Wording(settings.text.language, *archive)
            for row, pair in zip(np.flatnonzero(are_there).tolist(), scored.to_pylist(), strict=True):
                if nearest.ranks[row] <= k:
                    title = new.titles[int(nearest.queries[row]) + len(new.titles)]
                    other = Titled(shown[row]["title"], ())  # without tags, as the text has none to compare
                    pair |= {"rank": int(nearest.ranks[row]), "jaccard": None, "source": "encoder"}  # as in `pairs`
                    evidence[row] = wording.evidence(pair, Titled(title, ()), other)
        return pa.array(probabilities, from_pandas=True), nearest.similarities, evidence

    def _blocks(self) -> Iterable[Block]:
        """Return the embeddings, prepared for the search."""
        view, measure = self._run.embeddings, self._encoder().measure
        return (block(embeddings_of(table, self._sites, view.source), measure) for table in view.files())

    def _scorer(self, nearest: Neighbours) -> Scorer | None:
        """Return a scorer that knows the pairs of the nearest questions; None if there are none."""
        ids = self._sites.unpack(nearest.neighbours)[1].tolist()
        return scorer_of(self._run, self._sites, ids) if ids else None


class HeldMatcher(Matcher):
    """The same for many calls: the first one reads embeddings, pairs, questions and the reranker's vectors, and keeps
    them in memory.
    """

    def __init__(self, run: Run, encoder: Callable[[], TextEncoder]) -> None:
        """`encoder` opens the run's encoder."""
        super().__init__(_Held(run.uri), encoder)

    @cached_property
    def _held_blocks(self) -> list[Block]:
        return list(super()._blocks())

    def _blocks(self) -> list[Block]:
        return self._held_blocks

    @cached_property
    def _held_scorer(self) -> Scorer:
        pairs = self._run.pairs.arrow(PAIR_COLUMNS, [("source", "==", "encoder")])
        scorer = Scorer(self._run, self._sites, pairs_of(pairs, self._sites))
        scorer.hold()
        return scorer

    def _scorer(self, nearest: Neighbours) -> Scorer | None:
        return self._held_scorer if len(nearest.neighbours) else None


class _Held(Run):
    """A run whose questions are in memory, as far as texts are compared with them."""

    @cached_property
    def archive(self) -> TableView | None:
        view = super().archive
        return view and in_memory(view.source, view.arrow(list(dict.fromkeys([*QUESTION.names, *_SHOWN]))))
