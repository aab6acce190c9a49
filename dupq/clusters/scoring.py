"""From the neighbours of questions to pairs with a probability, table by table, in memory.

lists of neighbours  ──ranked──▶        rows of NEIGHBOURS, a direction each
NEIGHBOURS           ──undirected──▶    rows of CANDIDATES, a pair each
CANDIDATES           ──shared──▶        rows of COMPARED (evidence.py)
COMPARED             ──scored_table──▶  rows of SCORED
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from dupq.clusters.calibration import Calibrated, Evidence, Model, features_of, places_of
from dupq.clusters.evidence import UNLISTED, Around, Listing, Shared, Words, listing_of, title_leads
from dupq.neighbours.exact import rule_of
from dupq.neighbours.measure import Measure
from dupq.tables import CANDIDATES, COMPARED, NEIGHBOURS, SCORED
from dupq.text.terms import Terms, terms_of

if TYPE_CHECKING:
    from dupq.neighbours.nearest import Nearest

_NO_RANK = np.iinfo(np.int32).max  # after all others
_NO_KEY = np.iinfo(np.int64).max


class Scale(NamedTuple):
    """How evidence becomes a probability."""

    model: Model
    reference: np.ndarray
    k: int


def ranked(keys: np.ndarray, nearest: "Nearest", measure: Measure) -> pa.Table:
    """The lists (search.Nearest) of the questions `keys` as rows for the clusters stage."""
    from dupq.neighbours.search import as_neighbours

    scores = np.where(nearest.others >= 0, rule_of(measure).similarities(nearest.scores), -np.inf)
    listing = listing_of(scores, measure.highest)
    found = as_neighbours(keys, nearest, measure)
    indices = np.nonzero(nearest.others >= 0)
    columns = [*found, listing.lifts[indices]]
    return pa.table([pa.array(column) for column in columns], schema=NEIGHBOURS)


def undirected(directed: pa.Table) -> pa.Table:
    """Rows of NEIGHBOURS as pairs (CANDIDATES), each once, with how either side lists the other."""
    queries, others = directed["query"].to_numpy(), directed["neighbour"].to_numpy()
    left, right = np.minimum(queries, others), np.maximum(queries, others)
    ranks = directed["rank"].fill_null(_NO_RANK).to_numpy()
    order = np.lexsort((ranks, right, left))
    left, right, ranks, queries = left[order], right[order], ranks[order], queries[order]
    first = np.r_[True, (left[1:] != left[:-1]) | (right[1:] != right[:-1])] if len(left) else np.zeros(0, bool)
    pairs = np.cumsum(first) - 1
    columns: list[np.ndarray] = [left[first], right[first], directed["similarity"].to_numpy()[order][first]]
    listed = ranks != _NO_RANK
    values = [ranks, directed["lift"].to_numpy()[order]]
    for is_mine in (queries == left, queries == right):
        rows = np.flatnonzero(listed & is_mine)
        for value, empty in zip(values, (UNLISTED, 0.0), strict=True):
            column = np.full(int(first.sum()), empty, value.dtype)
            column[pairs[rows]] = value[rows]
            columns.append(column)
    return pa.table([pa.array(column) for column in columns], schema=CANDIDATES)


def arounds(columns: list[np.ndarray], pairs: pa.Table) -> tuple[Around, Around]:
    """The rows of AROUND for the left and for the right questions of pairs; zeros for a question without a row.

    Such are questions that are in no candidate pair: known links bring them into components all the same.
    """
    order = np.argsort(columns[0], kind="stable")
    keys, *sums = (np.append(column[order], last) for column, last in zip(columns, (_NO_KEY, 0, 0), strict=True))
    wanted = [pairs[side].to_numpy() for side in ("left", "right")]
    rows = [np.searchsorted(keys[:-1], some) for some in wanted]
    left, right = (
        Around(*(np.where(keys[row] == some, total[row], 0) for total in sums))
        for row, some in zip(rows, wanted, strict=True)
    )
    return left, right


def scale_of(calibration: Calibrated, k: int) -> Scale:
    """Return the model of a run, whose record is calibration.json."""
    return Scale(Model.from_dict(calibration["model"]), np.array(calibration["reference"]), k)


def features_in(pairs: pa.Table, sides: tuple[Around, Around], scale: Scale) -> np.ndarray:
    """The features (float64, (n, F)) of rows of COMPARED, with the rows of AROUND of both questions of each."""
    left, right = (
        Listing(*(pairs[f"{name}_{side}"].to_numpy() for name in ("rank", "lift"))) for side in ("left", "right")
    )
    common = Shared(*(pairs[name].to_numpy() for name in Shared._fields))
    indices = places_of(pairs["similarity"].to_numpy().astype(np.float64), scale.reference)
    leads = title_leads(common.title_cosine, sides, (left, right))
    return features_of(Evidence(indices, left, right, common, leads), scale.k)


def scored_table(pairs: pa.Table, sides: tuple[Around, Around], scale: Scale) -> pa.Table:
    """Rows of COMPARED, with the rows of AROUND of both questions of each, as rows of SCORED."""
    p = scale.model.probabilities(features_in(pairs, sides, scale))
    ranks, tags = [pairs[f"rank_{side}"].to_numpy() for side in ("left", "right")], pairs["tags"].to_numpy()
    columns = [
        *(pairs[name].combine_chunks() for name in ("left", "right", "similarity")),
        *(pa.array(side, mask=side == UNLISTED) for side in ranks),
        *(pairs[name].combine_chunks() for name in ("title_cosine", "text_cosine")),
        pa.array(tags, mask=np.isnan(tags)),
        pa.array(p.astype(np.float32)),
        pa.nulls(len(p), pa.float32()),
    ]
    return pa.table(columns, schema=SCORED)


def unlisted(pairs: np.ndarray, similarities: np.ndarray, common: Shared) -> pa.Table:
    """Rows of COMPARED of pairs (int64 keys, shape (m, 2)) of which neither side lists the other."""
    nothing, ranks = np.zeros(len(pairs), np.float32), np.full(len(pairs), UNLISTED, np.int32)
    columns = [pairs[:, 0], pairs[:, 1], similarities, ranks, nothing, ranks, nothing, *common]
    return pa.table([pa.array(column) for column in columns], schema=COMPARED)


def words_of_texts(texts: pa.Table, tags: Terms, marks: Terms, language: str) -> Words:
    """The words, tags and marks of rows of TEXTS that are compared."""
    titles, whole = (terms_of(_joined(texts[name]), language) for name in ("title", "text"))
    return Words(titles, whole, tags, marks)


def _joined(column: pa.ChunkedArray) -> pa.StringArray:
    return pa.concat_arrays([pa.array([], pa.string()), *column.chunks])
