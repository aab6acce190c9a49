"""Known duplicates, from links and from files of labelled pairs, and their split into train, development and test.

Duplicates form sets. A whole set goes to one part, so that training sees no question of the test part. A run calibrates
on the development part and measures itself on the test part.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.archive import link_files
from dupq.clusters.components import Represent, components, represented
from dupq.encoders.saved import PARTS
from dupq.errors import DupqError
from dupq.settings.sections import TrainingSettings
from dupq.system import thread_map
from dupq.tables import KEY_PAIRS, KNOWN_SETS, LINKS
from dupq.text.keys import (
    Sites,
    are_among,
    distinct,
    indices_among,
    key_hashes,
    pairs_among,
    parse_id,
    proper_pairs,
    sheet_lines,
)

_LABELS = {"1": True, "0": False}
FEWEST_SETS = 3  # one for each part
DEVELOPMENT_SHARE, TEST_SHARE = 0.2, 0.2  # of the sets


def duplicate_links(links: str, sites: Sites) -> np.ndarray:
    """Return the links of type duplicate (int64 keys, shape (m, 2)); the right question is named as the original.

    Links of sites that are not in `sites` are left out. Links are far fewer than questions, so any task may hold them.
    """

    def pairs_of(file: tuple[str, str]) -> np.ndarray:
        uri, site = file
        table = storage.read_table(uri, LINKS, ["question_id", "related_id", "link_type"])
        table = table.filter(pc.equal(table["link_type"], "duplicate"))
        ends = [sites.pack(site, table[column].to_numpy(), uri) for column in ("question_id", "related_id")]
        return np.stack(ends, axis=1)

    files = [(uri, site) for uri, site in link_files(links) if site in sites.names]
    return np.concatenate([np.zeros((0, 2), np.int64), *thread_map(pairs_of, files)])


def known_duplicates(links: str, sites: Sites) -> np.ndarray:
    """Return the pairs of questions that links name as duplicates (int64, shape (m, 2), left < right), sorted, once.

    A link of a question to itself is left out.
    """
    return proper_pairs(duplicate_links(links, sites))


def links_table(links: str | None, site_names: list[str], _: int = 0) -> pa.Table:
    """Return `known_duplicates` (KEY_PAIRS), empty without `links`. Memory: some 60 bytes a pair."""
    pairs = np.zeros((0, 2), np.int64) if links is None else known_duplicates(links, Sites(site_names))
    return pa.table([*pairs.T], schema=KEY_PAIRS)


def check_pairs(uri: str, sites: Sites) -> None:
    """Raise DupqError if `read_pairs` cannot read the file `uri`, or if it has no pairs."""
    _, is_duplicate = read_pairs(storage.read_bytes(uri), sites, uri)
    if not len(is_duplicate):
        raise DupqError(f"{uri}: no pairs in it; lines of two questions and 1 or 0 expected, with tabs between")


def read_pairs(content: bytes, sites: Sites, uri: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (int64, shape (m, 2), left < right) of lines (`sheet_lines`), and which are duplicates (bool).

    A line has two questions and a label: 1 (duplicates, the default) or 0. A question is `site/question_id`, or its id
    alone if there is a single site. A first line of names is a heading. Raises DupqError naming `uri` and the line.
    """
    pairs, labels = [], []
    for index, (location, fields) in enumerate(sheet_lines(content, uri)):
        if index == 0 and all(field.isidentifier() for field in fields):  # a heading: ids begin with a digit
            continue
        if len(fields) not in (2, 3):
            raise DupqError(f"{location}: {len(fields)} columns; two questions and 1 or 0 expected, with tabs between")
        label = fields[2] if len(fields) == 3 else "1"
        if label not in _LABELS:
            raise DupqError(f"{location}: label '{label[:50]}'; 1 (duplicates) or 0 expected")
        left, right = (_key(field, sites, location) for field in fields[:2])
        if left == right:
            raise DupqError(f"{location}: question '{fields[0][:50]}' is paired with itself")
        pairs.append((min(left, right), max(left, right)))
        labels.append(_LABELS[label])
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(labels, bool)


def _key(text: str, sites: Sites, location: str) -> int:
    site, slash, question_id = text.rpartition("/")
    if not slash and len(sites.names) > 1:
        count = len(sites.names)
        raise DupqError(f"{location}: question '{text[:50]}' has no site; write SITE/ID, as there are {count} sites")
    site = site if slash else sites.names[0]
    if site not in sites.names:
        raise DupqError(f"{location}: site '{site[:50]}' is not among those of the questions")
    return int(sites.pack(site, np.array([parse_id(question_id, location)]), location)[0])


@dataclass(frozen=True)
class Split:
    """Questions with known duplicates, sorted by key, with the smallest key of their set and the set's part."""

    questions: np.ndarray  # int64
    sets: np.ndarray  # int64
    parts: np.ndarray  # str

    def questions_of(self, *parts: str) -> np.ndarray:
        """Return the questions of some parts (sorted keys)."""
        return self.questions[np.isin(self.parts, parts)]

    def set_of(self, keys: np.ndarray) -> np.ndarray:
        """Return the set of each key (int64); -1 for a question without known duplicates."""
        indices, are_known = indices_among(self.questions, keys)
        return np.where(are_known, np.append(self.sets, -1)[indices], -1)

    def in_one_set(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Tell which pairs of keys are known duplicates, also by other questions of their set (bool, (m,))."""
        sets = self.set_of(left)
        return (sets >= 0) & (sets == self.set_of(right))

    def links_of(self, part: str, links: np.ndarray) -> np.ndarray:
        """Return the `links` (int64, shape (m, 2)) whose questions are in a part."""
        return links[are_among(self.questions_of(part), links[:, 0])]


def split_links(links: np.ndarray, settings: TrainingSettings) -> Split:
    """Split duplicate links (int64, shape (m, 2)) by the sets of questions that they connect.

    Sets are ordered by a hash of their smallest key, so the split does not depend on the order of the links. Fewer than
    FEWEST_SETS sets are all development: they are too few to learn from, but a run can calibrate on them.
    """
    questions, sets = components(links)
    names = distinct(sets)
    if len(names) < FEWEST_SETS:
        return Split(questions, sets, np.full(len(questions), "development"))
    shuffled = names[np.argsort(key_hashes(names, settings.seed), kind="stable")]
    test, development = (max(1, round(share * len(names))) for share in (TEST_SHARE, DEVELOPMENT_SHARE))
    part_of = np.array(PARTS)[np.repeat([2, 1, 0], [test, development, len(names) - test - development])]
    order = np.argsort(shuffled)
    return Split(questions, sets, part_of[order][np.searchsorted(shuffled[order], sets)])


def split_by_seen(
    questions: np.ndarray, sets: np.ndarray, otherwise: np.ndarray | str, seen: dict[str, np.ndarray]
) -> Split:
    """Split `questions` (int64 keys) of `sets` (int64): the last part in `seen` with a key of a set has it.

    A set that has no key in `seen` goes to the part `otherwise` (str).
    """
    parts = np.broadcast_to(np.asarray(otherwise, str), questions.shape)
    for part, keys in seen.items():
        parts = np.where(np.isin(sets, sets[np.isin(questions, keys)]), part, parts)
    return Split(questions, sets, parts)


def run_split(links: np.ndarray, seen: dict[str, np.ndarray]) -> Split:
    """Return the sets of known duplicates (int64 links, shape (m, 2)), split into the parts of a run.

    `seen` maps a part to the questions (int64 keys) that the encoder was trained, tuned or tested on. A set with one of
    them belongs to that part, training first. The other sets come from later nights or another archive. A hash of their
    smallest key sends half of them to `development`, which calibration may read, and half to `test`.
    """
    questions, sets = components(links)
    names, indices = np.unique(sets, return_inverse=True)
    others = np.where(key_hashes(names)[indices] & np.uint64(1), "development", "test")
    return split_by_seen(questions, sets, others, {part: seen[part] for part in reversed(PARTS)})


def represented_split(links: np.ndarray, seen: dict[str, np.ndarray], representative_of: Represent) -> Split:
    """Return `run_split` with each question replaced by its representative, as calibration needs it.

    A set with a training question belongs to train, else one with a test question to test. So a run never calibrates on
    what it is measured on, not even through a copy.
    """
    raw = run_split(links, seen)
    members, sets = components(proper_pairs(representative_of(links.ravel()).reshape(-1, 2)))
    reserved = {part: representative_of(raw.questions[raw.parts == part]) for part in ("test", "train")}
    return split_by_seen(members, sets, "development", reserved)


def represented_by(representatives: pa.Table) -> Represent:
    """Return the function that maps keys to their representatives (rows of REPRESENTATIVES)."""
    columns = [representatives[name].to_numpy() for name in ("key", "representative")]
    return lambda keys: represented(keys, *columns)


def sets_table(split: Split) -> pa.Table:
    """Return a split as rows of KNOWN_SETS."""
    columns = [pa.array(split.questions), pa.array(split.sets), pa.array(split.parts.tolist(), pa.string())]
    return pa.table(columns, schema=KNOWN_SETS)


def sets_in(table: pa.Table) -> Split:
    """Return the split in rows of KNOWN_SETS."""
    keys, sets = (table[name].to_numpy() for name in ("key", "duplicates"))
    return Split(keys, sets, np.array(table["part"].to_pylist(), str))


@dataclass(frozen=True)
class KnownDuplicates:
    """The known and labelled pairs of the archive's questions (int64, shape (m, 2), left < right)."""

    links: np.ndarray  # duplicates, by links and by labels
    split: Split
    wrong: np.ndarray  # labelled as no duplicates, of training questions only
    counts: dict[str, int]


def known_pairs(
    linked: np.ndarray, labelled: tuple[np.ndarray, np.ndarray], keys: np.ndarray, settings: TrainingSettings
) -> KnownDuplicates:
    """Return the known pairs of the questions `keys` (ascending), and their split.

    `linked` and `labelled` (duplicates, others) are int64 keys of shape (m, 2), left < right. A pair that is labelled 0
    although its questions are in one set of duplicates is left out and counted.
    """
    duplicates, others = labelled
    links = np.unique(pairs_among(keys, np.concatenate([duplicates, linked])), axis=0)
    split = split_links(links, settings)
    wrong = pairs_among(keys, others)
    contradicted = split.in_one_set(*wrong.T)
    of_training = ~np.isin(wrong, split.questions_of("development", "test")).any(axis=1)
    counts = {
        "pairs of files not in the archive": sum(len(pairs) - len(pairs_among(keys, pairs)) for pairs in labelled),
        "pairs of files labelled 0 within a set of duplicates": int(contradicted.sum()),
    }
    return KnownDuplicates(links, split, wrong[~contradicted & of_training], counts)
