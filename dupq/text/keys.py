"""A question's key `(site, question_id)` packed into one int64, so that the core works on plain arrays.

The upper 15 bits hold the site's index in the run's sorted list of sites, the lower 48 the id. So keys sort as
`(site, question_id)` does.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq.errors import DupqError

ID_BITS = 48
MAXIMUM_ID = (1 << ID_BITS) - 1
_MAXIMUM_SITES = 1 << 15
_MOST_DIGITS = len(str(MAXIMUM_ID))


class Sites:
    """The sites of a run, sorted."""

    def __init__(self, names: list[str]) -> None:
        """Sort `names`. Raises DupqError if there are more than 32,768."""
        self.names = sorted(set(names))
        if len(self.names) > _MAXIMUM_SITES:
            raise DupqError(f"{len(self.names)} sites; at most {_MAXIMUM_SITES} fit into one run")

    def pack(self, site: str, question_ids: np.ndarray, source: str) -> np.ndarray:
        """Return the keys (int64) of ids of one site. Raises DupqError naming `source` for an id out of range."""
        return _in_range(np.asarray(question_ids, np.int64), source) | (self.names.index(site) << ID_BITS)

    def pack_columns(self, sites: pa.ChunkedArray, question_ids: pa.ChunkedArray, source: str) -> np.ndarray:
        """Return the keys (int64) of a table's rows. Raises DupqError naming `source` for a site that the run lacks."""
        numbers = pc.index_in(sites, pa.array(self.names, pa.string()))
        if numbers.null_count:
            site = sites.filter(numbers.is_null())[0]
            raise DupqError(f"{source}: site '{site}' is not among the run's {len(self.names)} sites")
        return _in_range(question_ids.to_numpy(), source) | (numbers.to_numpy().astype(np.int64) << ID_BITS)

    def pack_pairs(self, table: pa.Table, source: str) -> np.ndarray:
        """Return the keys of a table with the columns of `pairs` (int64, shape (m, 2)). Raises as `pack_columns`."""
        sides = ((table[f"site_{side}"], table[f"question_id_{side}"]) for side in ("left", "right"))
        return np.stack([self.pack_columns(names, numbers, source) for names, numbers in sides], axis=1)

    def unpack(self, keys: np.ndarray) -> tuple[list[str], np.ndarray]:
        """Return the sites and ids of keys."""
        return [self.names[index] for index in (keys >> ID_BITS).tolist()], keys & MAXIMUM_ID

    def columns(self, keys: np.ndarray) -> tuple[pa.StringArray, pa.Int64Array]:
        """Return the sites and ids of keys as columns of a table."""
        numbers = pa.array((keys >> ID_BITS).astype(np.int32))
        sites = pa.DictionaryArray.from_arrays(numbers, pa.array(self.names, pa.string())).cast(pa.string())
        return sites, pa.array(keys & MAXIMUM_ID)

    def labels(self, keys: np.ndarray) -> pa.StringArray:
        """Return keys as `site/question_id`."""
        sites, ids = self.columns(keys)
        return pc.binary_join_element_wise(sites, ids.cast(pa.string()), "/")

    def label(self, key: int) -> str:
        """Return a key as `site/question_id`."""
        return f"{self.names[key >> ID_BITS]}/{key & MAXIMUM_ID}"


def _in_range(ids: np.ndarray, source: str) -> np.ndarray:
    if ids.size and (ids.min() < 0 or ids.max() > MAXIMUM_ID):
        wrong = ids[(ids < 0) | (ids > MAXIMUM_ID)][0]
        raise DupqError(f"{source}: question_id {wrong} is out of range; 0 to 2**48 - 1 expected")
    return ids


class RowsByKey:
    """An index of a table's rows by key, whatever order the rows are in."""

    def __init__(self, keys: np.ndarray) -> None:
        """Index `keys` (int64, (n,)), which are distinct."""
        self.keys = keys
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the row of each of `keys`, all of which must be in the table."""
        return self._order[np.searchsorted(self._sorted, keys)]


def indices_among(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each of `values` (any shape) in `keys` (ascending), and whether it is there (bool).

    Both are integers of one type. The index of a value that is not there is arbitrary. Takes n log k steps for n
    values and k keys, and copies no keys, unlike np.isin.
    """
    if not len(keys):
        return np.zeros(values.shape, np.int64), np.zeros(values.shape, bool)
    indices = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return indices, keys[indices] == values


def are_among(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Tell for each of `values` (any shape) whether it is among `keys` (ascending): bool."""
    return indices_among(keys, values)[1]


def pairs_among(keys: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the `pairs` (shape (m, 2)) whose questions are both among `keys` (ascending)."""
    return pairs[are_among(keys, pairs).all(axis=1)]


def without(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return `keys` (ascending, distinct) except those among `others`. Extra memory: a byte per key."""
    indices, are_there = indices_among(keys, others)
    return np.delete(keys, indices[are_there])


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the distinct `values` (integers, any shape), ascending.

    np.unique uses a hash table from numpy 2.3 on, which takes a hundred times as long for 8 million values.
    """
    ordered = np.sort(values, axis=None)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def sorted_keys(tables: Iterable[pa.Table]) -> np.ndarray:
    """Return the keys of tables, sorted. Memory: 16 bytes per key at the peak."""
    keys = np.concatenate([np.zeros(0, np.int64), *(table["key"].to_numpy() for table in tables)])
    keys.sort()
    return keys


def key_hashes(keys: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return the 64-bit XXH3 of each key's eight bytes (uint64, (n,)). Two keys never share a hash."""
    content = keys.astype("<i8").tobytes()
    hashes = (xxhash.xxh3_64_intdigest(content[start : start + 8], seed) for start in range(0, len(content), 8))
    return np.fromiter(hashes, np.uint64, len(keys))


def hash_limit(keys: np.ndarray, most: int) -> int:
    """Return the highest hash among the `most` distinct keys with the lowest hashes; 0 for no keys."""
    hashes = key_hashes(keys)
    lowest = np.partition(hashes, most - 1)[:most] if 0 < most < len(keys) else hashes[:most]
    return int(lowest.max(initial=0))


def sample_by_hash(keys: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` of the distinct keys, those with the lowest hashes, sorted.

    So samples of two archives agree where the archives do.
    """
    return keys if len(keys) <= most else np.sort(keys[np.argpartition(key_hashes(keys), most)[:most]])


def sheet_lines(content: bytes | str, source: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the location, for messages, and the fields of each line that is not blank.

    Tabs, commas or semicolons separate them, as in the first line. Raises DupqError naming `source` for bytes that are
    not UTF-8, and for a quote that is not closed.
    """
    try:
        text = (content if isinstance(content, str) else content.decode()).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DupqError(f"{source}: not a text in UTF-8 ({error})") from error
    separator = max("\t,;", key=text.lstrip("\r\n").partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for fields in reader:
            if any(map(str.strip, fields)):
                yield f"{source}, line {reader.line_num}", [field.strip() for field in fields]
    except csv.Error as error:
        raise DupqError(f"{source}, line {reader.line_num}: {error}; is a quote closed?") from error


def parse_id(text: str, where: str) -> int:
    """Parse a question id of a text file. Raises DupqError that begins with `where` for anything else."""
    digits = text.lstrip("0") or text[-1:]  # int() refuses thousands of digits, even zeros
    if not (text.isascii() and text.isdigit() and len(digits) <= _MOST_DIGITS and int(digits) <= MAXIMUM_ID):
        raise DupqError(f"{where}: '{text[:50]}' is no question id; a whole number expected")
    return int(digits)


def pairs_in(table: pa.Table) -> np.ndarray:
    """Return the columns `left` and `right` of a table of pairs (int64, shape (m, 2))."""
    return np.stack([table[side].to_numpy() for side in ("left", "right")], axis=1)


def distinct_pairs(pairs: np.ndarray) -> np.ndarray:
    """Return the distinct `pairs` (int64, shape (m, 2)), sorted."""
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    is_first = np.ones(len(pairs), bool)
    is_first[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return pairs[is_first]


def proper_pairs(pairs: np.ndarray) -> np.ndarray:
    """Return the distinct `pairs` with the smaller key on the left, sorted, without pairs of a key with itself."""
    return distinct_pairs(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1))


def pair_numbers(keys: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Number `pairs` (shape (m, 2)) of up to 3 * 10^9 `keys` (ascending) in the order of pairs (int64, (m,))."""
    indices = np.searchsorted(keys, pairs)
    return np.asarray(indices[:, 0] * len(keys) + indices[:, 1])


def pair_indices(pairs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the index in `pairs` (distinct, in any order) of each of `others`; -1 for one that is not there.

    Pairs are keys (int64, shape (m, 2)). Only those of keys that the shorter side has are compared, so this is cheap if
    either is short.
    """
    keys = distinct(min(pairs, others, key=len))
    rows, wanted = (np.flatnonzero(are_among(keys, side).all(axis=1)) for side in (pairs, others))
    numbers = pair_numbers(keys, pairs[rows])
    order = np.argsort(numbers, kind="stable")
    indices, are_there = indices_among(numbers[order], pair_numbers(keys, others[wanted]))
    result = np.full(len(others), -1)
    result[wanted[are_there]] = rows[order][indices[are_there]]
    return result


def are_pairs_among(pairs: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Tell for each pair in `others` whether it is among `pairs`: bool. Both are as for `pair_indices`."""
    return np.asarray(pair_indices(pairs, others) >= 0)


def rows_among(questions: Iterator[pa.RecordBatch], keys: np.ndarray, schema: pa.Schema) -> pa.Table:
    """Return the columns of `schema` of those questions of a shard that are among `keys` (sorted)."""
    rows = [schema.empty_table()]
    for batch in questions:
        table = pa.table([batch[name] for name in schema.names], schema=schema)
        rows.append(table.filter(pa.array(are_among(keys, batch["key"].to_numpy()))))
    return pa.concat_tables(rows)


def rekey(keys: np.ndarray, earlier: Sequence[str], now: Sequence[str]) -> np.ndarray:
    """Return keys of a run with the sorted sites `earlier` as keys of one with `now`.

    -1 stays as it is. Keys of sites that are gone become negative; different keys stay different.
    """
    if list(earlier) == list(now):
        return keys
    numbers = [now.index(site) if site in now else -1 - index for index, site in enumerate(earlier)]
    moved = (np.array(numbers, np.int64)[np.maximum(keys, 0) >> ID_BITS] << ID_BITS) | (keys & MAXIMUM_ID)
    return np.where(keys < 0, keys, moved)
