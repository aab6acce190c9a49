"""A question's key `(site, question_id)` packed into one int64, so that the core works on plain arrays.

The site's index in the run's sorted list of sites fills the upper 15 bits, the id the lower 48: keys sort
as `(site, question_id)` does.
"""

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
        """`names` in any order; raises DupqError if there are more than 32,768."""
        self.names = sorted(set(names))
        if len(self.names) > _MAXIMUM_SITES:
            raise DupqError(f"{len(self.names)} sites; at most {_MAXIMUM_SITES} fit into one run")

    def pack(self, site: str, question_ids: np.ndarray, place: str) -> np.ndarray:
        """The keys (int64) of ids of one site; raises DupqError naming `place` for an id out of range."""
        ids = np.asarray(question_ids, np.int64)
        if ids.size and (ids.min() < 0 or ids.max() > MAXIMUM_ID):
            wrong = ids[(ids < 0) | (ids > MAXIMUM_ID)][0]
            raise DupqError(f"{place}: question_id {wrong} is out of range; 0 to 2**48 - 1 expected")
        return ids | (self.names.index(site) << ID_BITS)

    def pack_columns(self, sites: pa.ChunkedArray, question_ids: pa.ChunkedArray, place: str) -> np.ndarray:
        """The keys (int64) of a table's columns of sites and ids; a site that the run lacks is an error."""
        keys = np.empty(len(sites), np.int64)
        ids = question_ids.to_numpy()
        for site in pc.unique(sites).to_pylist():
            if site not in self.names:
                raise DupqError(f"{place}: site '{site}' is not among the run's {len(self.names)} sites")
            rows = pc.equal(sites, site).to_numpy()
            keys[rows] = self.pack(site, ids[rows], place)
        return keys

    def unpack(self, keys: np.ndarray) -> tuple[list[str], np.ndarray]:
        """The sites and ids of keys."""
        names = [self.names[index] for index in (keys >> ID_BITS).tolist()]
        return names, keys & MAXIMUM_ID

    def columns(self, keys: np.ndarray) -> tuple[pa.StringArray, pa.Int64Array]:
        """The sites and ids of keys, as columns of a table."""
        numbers = pa.array((keys >> ID_BITS).astype(np.int32))
        sites = pa.DictionaryArray.from_arrays(numbers, pa.array(self.names, pa.string())).cast(pa.string())
        return sites, pa.array(keys & MAXIMUM_ID)

    def labels(self, keys: np.ndarray) -> pa.StringArray:
        """Keys as `site/question_id`."""
        sites, ids = self.columns(keys)
        return pc.binary_join_element_wise(sites, ids.cast(pa.string()), "/")

    def label(self, key: int) -> str:
        """A key as `site/question_id`."""
        return f"{self.names[key >> ID_BITS]}/{key & MAXIMUM_ID}"


class RowsByKey:
    """The rows of a table by their keys, in whatever order they are."""

    def __init__(self, keys: np.ndarray) -> None:
        """`keys` (int64, (n,)): distinct."""
        self.keys = keys
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]

    def of(self, wanted: np.ndarray) -> np.ndarray:
        """The row of each of `wanted`, all of which are there."""
        return self._order[np.searchsorted(self._sorted, wanted)]


def places_among(keys: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each of `wanted` (any shape) is among `keys` (ascending), any place if it is not; and whether it is there.

    Of integers of one type. n of k keys take n log k steps, and no copy of the keys as np.isin makes.
    """
    if not len(keys):
        return np.zeros(wanted.shape, np.int64), np.zeros(wanted.shape, bool)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return places, keys[places] == wanted


def are_among(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Whether each of `wanted` (any shape) is among `keys` (ascending): bool."""
    return places_among(keys, wanted)[1]


def pairs_among(keys: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return those of `pairs` (shape (m, 2)) whose questions are both among `keys` (ascending)."""
    return pairs[are_among(keys, pairs).all(axis=1)]


def without(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """`keys` (ascending, each once) but for those that are among `others`; beside the result a byte a key."""
    is_left = np.ones(len(keys), bool)
    places, are_there = places_among(keys, others)
    is_left[places[are_there]] = False
    return keys[is_left]


def distinct(values: np.ndarray) -> np.ndarray:
    """Each of `values` (integers, any shape) once, ascending.

    By sorting: np.unique goes by a hash table from numpy 2.3 on, which takes a hundred times as long for 8 million.
    """
    found = np.sort(values, axis=None)
    return found[np.append(True, found[1:] != found[:-1])] if len(found) else found


def key_hashes(keys: np.ndarray) -> np.ndarray:
    """Return XXH3 with 64 bits of the eight bytes of each key (uint64, (n,)): two keys never share a hash."""
    content = keys.astype("<i8").tobytes()
    hashes = (xxhash.xxh3_64_intdigest(content[start : start + 8]) for start in range(0, len(content), 8))
    return np.fromiter(hashes, np.uint64, len(keys))


def hash_limit(keys: np.ndarray, most: int) -> int:
    """The highest hash that at most `most` of the keys, which are distinct, reach: that of the last one, if all do."""
    if not most or not len(keys):
        return 0
    hashes = key_hashes(keys)
    return int(hashes.max() if len(keys) <= most else np.partition(hashes, most - 1)[most - 1])


def parse_id(text: str, where: str) -> int:
    """A question id in a file of texts; raises DupqError that names `where` for anything else."""
    digits = text.lstrip("0") or text[-1:]  # Python refuses to read thousands, also of zeros
    if not (text.isascii() and text.isdigit() and len(digits) <= _MOST_DIGITS and int(digits) <= MAXIMUM_ID):
        raise DupqError(f"{where}: '{text[:50]}' is no question id; a whole number expected")
    return int(digits)


def distinct_pairs(pairs: np.ndarray) -> np.ndarray:
    """Return `pairs` (int64, shape (m, 2)) sorted, each once."""
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    is_first = np.ones(len(pairs), bool)
    is_first[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)
    return pairs[is_first]


def pair_numbers(keys: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """A number (int64) for each pair (shape (m, 2)) of some of up to 3 * 10^9 `keys` (ascending), in pairs' order."""
    places = np.searchsorted(keys, pairs)
    numbers: np.ndarray = places[:, 0] * len(keys) + places[:, 1]
    return numbers


def are_pairs_among(pairs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Whether each of `wanted` (keys, shape (m, 2)) is among `pairs` (likewise, in any order): bool.

    Only pairs of a left key that both have are compared, so that it takes little where one of the two is small.
    """
    found = np.zeros(len(wanted), bool)
    rows = np.flatnonzero(are_among(distinct(pairs[:, 0]), wanted[:, 0]))
    pairs = pairs[are_among(distinct(wanted[rows, 0]), pairs[:, 0])]
    found[rows] = np.isin(_codes(wanted[rows]), _codes(pairs))
    return found


def _codes(pairs: np.ndarray) -> np.ndarray:
    """One comparable value a pair of keys."""
    return np.rec.fromarrays([pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)])
