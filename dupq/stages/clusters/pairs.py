"""neighbours, near duplicates, terms, model → every candidate pair with its evidence and probability.

    candidates  a task a part   both directions of its neighbours as pairs; which questions' terms are needed
    terms       a task a part   the terms of its questions, for the parts that need them
    compared    a task a part   words in common, of pairs and of each question with its neighbours
    around      a task a part   the latter for its questions, from all parts and for the parts that need it
    scored      a task a part   probability

A part holds the pairs whose left keys are in it (`partition_of`). Memory: its candidates, and the terms of its own
questions and of 100,000 others at once, some 2 kB each with the libraries' copies.
"""

from itertools import pairwise

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.clusters.evidence import Shared, around, shared
from dupq.clusters.scoring import arounds, read_scale, scored_table, undirected
from dupq.clusters.thresholds import Spread, spread_of
from dupq.execution import exchange
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.runs.layout import PairFiles
from dupq.shards import partition_of
from dupq.stages.neighbours.tables import directed_rows
from dupq.stages.terms import read_rarities, read_terms, words_of
from dupq.tables import AROUND, CANDIDATES, COMPARED, HISTOGRAM, KEYS, SCORED, TERMS
from dupq.text.keys import RowsByKey, distinct

_AT_ONCE = 100_000  # right questions whose terms are in memory together
_PRECISIONS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # their thresholds are stored beside the chosen one


def score_pairs(files: PairFiles, k: int) -> Report:
    """Write the candidate pairs of every part with their probability."""
    parts = range(files.terms.parts)
    report = run_tasks("candidates", _candidates, [(files, part) for part in parts])
    rows_in = report.rows_in
    report.add(run_tasks("terms", _terms_of_home, [(files, part) for part in parts]))
    report.add(run_tasks("compared", _compare_part, [(files, part) for part in parts]))
    report.add(run_tasks("around", _around_home, [(files, part) for part in parts]))
    written = run_tasks("pairs", _score_part, [(files, k, part) for part in parts])
    report.add(written)
    report.rows_in, report.rows_out = rows_in, written.rows_out
    return report


def _candidates(files: PairFiles, part: int) -> Counts:
    output = files.candidates(part)

    def make() -> Counts:
        directed = directed_rows(files.neighbours, part).combine_chunks()
        table = undirected(directed)
        keys = distinct(np.concatenate([table["left"].to_numpy(), table["right"].to_numpy()]))
        homes = partition_of(keys, files.terms.parts)
        batches = exchange.split([keys], KEYS, homes, files.terms.parts)
        exchange.write_parts(files.wanted(part), batches, KEYS)
        storage.write_table(output, table, CANDIDATES)
        return {"rows_in": len(directed), "rows_out": len(table)}

    return skip_or(output, make)


def _terms_of_home(files: PairFiles, home: int) -> Counts:
    output = files.terms_for(home)

    def make() -> Counts:
        table = read_terms(files.terms, home).combine_chunks()
        places = RowsByKey(table["key"].to_numpy())
        wanted = (exchange.read_part([files.wanted(part)], home)[0] for part in range(files.terms.parts))
        rows = (places.of(some["key"].to_numpy()) for some in wanted)
        batches = (exchange.one_batch(table.take(pa.array(some))) for some in rows)
        exchange.write_parts(output, batches, TERMS)
        return {}

    return skip_or(output, make)


def _compare_part(files: PairFiles, part: int) -> Counts:
    output = files.compared(part)

    def make() -> Counts:
        pairs = storage.read_table(files.candidates(part), CANDIDATES)
        keys = [pairs[side].to_numpy() for side in ("left", "right")]
        common = _in_common(files, part, *keys)
        listed = [pairs[f"rank_{side}"].to_numpy() > 0 for side in ("left", "right")]
        questions = distinct(np.concatenate(keys))
        rows = np.searchsorted(questions, np.concatenate([key[some] for key, some in zip(keys, listed, strict=True)]))
        found = around(rows, np.concatenate([common.title_cosine[some] for some in listed]), len(questions))
        homes = partition_of(questions, files.terms.parts)
        batches = exchange.split([questions, *found], AROUND, homes, files.terms.parts)
        exchange.write_parts(files.listed(part), batches, AROUND)
        table = pa.table([*pairs.columns, *map(pa.array, common)], schema=COMPARED)
        storage.write_table(output, table, COMPARED)  # last: it marks the rest
        return {}

    return skip_or(output, make)


def _in_common(files: PairFiles, part: int, left: np.ndarray, right: np.ndarray) -> Shared:
    """What the pairs of a part have in common, those whose right questions are of some homes after those of others."""
    parts, rarities = files.terms.parts, read_rarities(files.terms)
    found = Shared(*np.zeros((len(Shared._fields), len(left)), np.float32))
    own = exchange.read_part([files.terms_for(part)], part)  # with those of all left questions
    homes = partition_of(right, parts)
    for some in _together(np.bincount(partition_of(distinct(right), parts), minlength=parts)):
        rows = np.flatnonzero((some.start <= homes) & (homes < some.stop))
        others = exchange.read_part([files.terms_for(home) for home in some if home != part], part)
        places, words = words_of(exchange.table_of([*own, *others], TERMS))
        common = shared(words, places.of(left[rows]), places.of(right[rows]), rarities)
        for column, values in zip(found, common, strict=True):
            column[rows] = values
    return found


def _together(counts: np.ndarray) -> list[range]:
    """Homes whose questions, so many of each, are compared at once: about _AT_ONCE, or one home's if it has more."""
    order = (np.cumsum(counts) - counts) // _AT_ONCE
    bounds = [*np.flatnonzero(np.diff(order, prepend=-1)), len(counts)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def _around_home(files: PairFiles, home: int) -> Counts:
    output = files.around_for(home)

    def make() -> Counts:
        batches = exchange.read_part([files.listed(part) for part in range(files.terms.parts)], home)
        columns = exchange.columns_of(batches, AROUND)
        keys, rows = np.unique(columns[0], return_inverse=True)
        sums = [np.zeros(len(keys), np.int64) for _ in columns[1:]]
        for total, column in zip(sums, columns[1:], strict=True):
            np.add.at(total, rows, column)
        table = pa.table([pa.array(column) for column in (keys, *sums)], schema=AROUND)
        storage.write_table(files.around(home), table, AROUND)
        bounds = np.cumsum([0, *(len(batch) for batch in batches)])
        wanted = (rows[bounds[part] : bounds[part + 1]] for part in range(files.terms.parts))
        exchange.write_parts(output, (exchange.one_batch(table.take(pa.array(some))) for some in wanted), AROUND)
        return {}

    return skip_or(output, make)


def _score_part(files: PairFiles, k: int, part: int) -> Counts:
    output = files.scored(part)

    def make() -> Counts:
        pairs = storage.read_table(files.compared(part), COMPARED)
        uris = [files.around_for(home) for home in range(files.terms.parts)]
        sides = arounds(exchange.columns_of(exchange.read_part(uris, part), AROUND), pairs)
        table = scored_table(pairs, sides, read_scale(files.calibration, k))
        write_histogram(files.histogram(part), table["probability"].to_numpy())
        storage.write_table(output, table, SCORED)
        return {"rows_in": len(pairs), "rows_out": len(pairs)}

    return skip_or(output, make)


def choose_threshold(files: PairFiles, precision: float, given: float) -> float:
    """The probability from which a pair may join: `given`, or if that is below 0 the one for the wanted precision.

    Chosen over all candidate pairs of the archive, in steps of .001, and stored with those for other precisions.
    """

    def make() -> Counts:
        spread = _histogram(files)
        chosen = spread.choose(precision) if given < 0 else {"precision": precision, **spread.above(given)}
        others = [spread.choose(wanted) for wanted in _PRECISIONS]
        storage.write_json(files.threshold, {"chosen": chosen, "others": others})
        return {}

    skip_or(files.threshold, make)
    return float(storage.read_json(files.threshold)["chosen"]["threshold"])


def write_histogram(uri: str, probabilities: np.ndarray) -> None:
    """How many pairs have a probability of each step, and the sum of these."""
    columns = [pa.array(column) for column in spread_of(probabilities)]
    storage.write_table(uri, pa.table(columns, schema=HISTOGRAM), HISTOGRAM)


def _histogram(files: PairFiles) -> Spread:
    """The sum of the parts' counts."""
    tables = [storage.read_table(files.histogram(part), HISTOGRAM) for part in range(files.terms.parts)]
    return Spread(*(np.sum([table[name].to_numpy() for table in tables], axis=0) for name in HISTOGRAM.names))
