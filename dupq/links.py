"""Known duplicates: links and files of labelled pairs, the sets that they form, the split of these into train,
development and test, and which of them a run may calibrate on and which it must keep to measure itself.

Whole sets go to one part, never single links, so that no question of the test part is seen in training.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq import storage
from dupq.archive import link_files
from dupq.clusters.components import components, represented
from dupq.encoders.saved import PARTS
from dupq.errors import DupqError
from dupq.settings.sections import TrainingSettings
from dupq.tables import KEY_PAIRS, KNOWN_SETS, LINKS
from dupq.text.keys import Sites, are_among, distinct, pairs_among, parse_id


def duplicate_links(links: str, sites: Sites) -> np.ndarray:
    """The links of type duplicate (int64 keys, shape (m, 2)); on the right is what each names as the original.

    A site that the run lacks is left out. Links are far fewer than questions, so that any task may hold them all.
    """
    found = [np.zeros((0, 2), np.int64)]
    for uri, site in link_files(links):
        if site in sites.names:
            table = storage.read_table(uri, LINKS, ["question_id", "related_id", "link_type"])
            table = table.filter(pc.equal(table["link_type"], "duplicate"))
            ends = [sites.pack(site, table[column].to_numpy(), uri) for column in ("question_id", "related_id")]
            found.append(np.stack(ends, axis=1))
    return np.concatenate(found)


def known_duplicates(links: str, sites: Sites) -> np.ndarray:
    """The pairs of questions that links name duplicates (int64, shape (m, 2), left < right), sorted, each once.

    A question linked to itself is left out.
    """
    pairs = np.unique(np.sort(duplicate_links(links, sites), axis=1), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def links_table(links: str | None, site_names: list[str], _: int = 0) -> pa.Table:
    """Return `known_duplicates` (KEY_PAIRS), none without `links`. Memory: some 60 bytes each."""
    found = np.zeros((0, 2), np.int64) if links is None else known_duplicates(links, Sites(site_names))
    return pa.table([*found.T], schema=KEY_PAIRS)


_LABELS = {"1": True, "0": False}


def read_pairs(content: bytes, sites: Sites, place: str) -> tuple[np.ndarray, np.ndarray]:
    """The duplicates and the others (int64, shape (m, 2), left < right, sorted, each pair once) of `read_lines`."""
    pairs, labels = read_lines(content, sites, place)
    return np.unique(pairs[labels], axis=0), np.unique(pairs[~labels], axis=0)


def check_pairs(uri: str, sites: Sites) -> None:
    """Raise DupqError as `read_lines` does for the file `uri`, and if it has no pairs."""
    _, labels = read_lines(storage.read_bytes(uri), sites, uri)
    if not len(labels):
        raise DupqError(f"{uri}: no pairs in it; lines of two questions and 1 or 0 expected, with tabs between")


def read_lines(content: bytes, sites: Sites, place: str) -> tuple[np.ndarray, np.ndarray]:
    """The pairs (int64, shape (m, 2), left < right) of tab-separated lines, and which are duplicates (bool, (m,)).

    A line is two questions and 1 (duplicates, also if it is missing) or 0. A question is
    `site/question_id`, or with a single site its id alone. A first line of names is a heading. Raises DupqError
    naming `place` and the line.
    """
    pairs, labels = [], []
    for where, fields in _lines(content, place):
        if len(fields) not in (2, 3):
            raise DupqError(f"{where}: {len(fields)} columns; two questions and 1 or 0 expected, with tabs between")
        label = fields[2] if len(fields) == 3 else "1"
        if label not in _LABELS:
            raise DupqError(f"{where}: label '{label[:50]}'; 1 (duplicates) or 0 expected")
        left, right = (_key(field, sites, where) for field in fields[:2])
        if left == right:
            raise DupqError(f"{where}: question '{fields[0][:50]}' is paired with itself")
        pairs.append((min(left, right), max(left, right)))
        labels.append(_LABELS[label])
    return np.array(pairs, np.int64).reshape(-1, 2), np.array(labels, bool)


def _lines(content: bytes, place: str) -> Iterator[tuple[str, list[str]]]:
    """The location (for messages) and the fields of every line that is not blank, without the heading."""
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DupqError(f"{place}: not a text in UTF-8 ({error})") from error
    for number, line in enumerate(lines, 1):
        fields = [field.strip() for field in line.split("\t")]
        is_heading = number == 1 and all(field.isidentifier() for field in fields)  # no id is: those begin with a digit
        if line.strip() and not is_heading:
            yield f"{place}, line {number}", fields


def _key(text: str, sites: Sites, where: str) -> int:
    site, slash, question_id = text.rpartition("/")
    if not slash and len(sites.names) > 1:
        raise DupqError(f"{where}: question '{text[:50]}' has no site, and there are {len(sites.names)}")
    site = site if slash else sites.names[0]
    if site not in sites.names:
        raise DupqError(f"{where}: site '{site[:50]}' is not among those of the questions")
    return int(sites.pack(site, np.array([parse_id(question_id, where)]), where)[0])


FEWEST_SETS = 3  # of known duplicates, for one of each part
DEVELOPMENT_SHARE, TEST_SHARE = 0.2, 0.2  # of the sets; as in training, so in every later run on its encoder


@dataclass(frozen=True)
class Split:
    """The questions with known duplicates (sorted keys), the smallest key of each one's set, and its part."""

    questions: np.ndarray  # int64
    sets: np.ndarray  # int64
    parts: np.ndarray  # str

    def questions_of(self, *parts: str) -> np.ndarray:
        """The keys of one part or of several, sorted."""
        return self.questions[np.isin(self.parts, parts)]

    def set_of(self, keys: np.ndarray) -> np.ndarray:
        """The set of each key (int64); -1 for a question without known duplicates."""
        if not len(self.questions):
            return np.full(len(keys), -1)
        indices = np.minimum(np.searchsorted(self.questions, keys), len(self.questions) - 1)
        return np.where(self.questions[indices] == keys, self.sets[indices], -1)

    def links_of(self, part: str, links: np.ndarray) -> np.ndarray:
        """The rows of `links` (int64, shape (m, 2)) whose questions are in one part."""
        return links[are_among(self.questions_of(part), links[:, 0])]


def split_links(links: np.ndarray, settings: TrainingSettings) -> Split:
    """Split duplicate links (int64, shape (m, 2)) by the sets of questions that they connect.

    The order is that of a hash of each set's smallest key: the same links give the same split, whatever their
    order. With fewer than three sets all are development: too few to learn from, but a run can calibrate on them.
    """
    questions, sets = components(links)
    found = distinct(sets)
    if len(found) < FEWEST_SETS:
        return Split(questions, sets, np.full(len(questions), "development"))
    hashes = [xxhash.xxh3_64_intdigest(int(key).to_bytes(8, "little"), seed=settings.seed) for key in found]
    shuffled = found[np.argsort(np.array(hashes, np.uint64), kind="stable")]
    test = _count(TEST_SHARE, len(found))
    development = _count(DEVELOPMENT_SHARE, len(found))
    part_of = np.array(PARTS)[np.repeat([2, 1, 0], [test, development, len(found) - test - development])]
    order = np.argsort(shuffled)
    parts = part_of[order][np.searchsorted(shuffled[order], sets)]
    return Split(questions, sets, parts)


def _count(share: float, total: int) -> int:
    return max(1, round(share * total))


Represent = Callable[[np.ndarray], np.ndarray]  # from keys to those of the questions that represent them


def parts_of(
    questions: np.ndarray, sets: np.ndarray, otherwise: np.ndarray | str, seen: dict[str, np.ndarray]
) -> np.ndarray:
    """The part (str) of each question: that of `seen` that has a question of its set, the last one first, or another.

    `sets` are those of `questions` (int64), `seen` holds questions by part.
    """
    parts = np.broadcast_to(np.asarray(otherwise, str), questions.shape)
    for part, keys in seen.items():
        parts = np.where(np.isin(sets, sets[np.isin(questions, keys)]), part, parts)
    return parts


def run_split(links: np.ndarray, seen: dict[str, np.ndarray]) -> Split:
    """The sets of known duplicates (int64 links, shape (m, 2)) in the parts of a run.

    `seen` holds the questions (int64 keys) that the encoder was trained, tuned and tested on, by part. A set with one
    of them is of that part, training first. Of all others, links of later nights or of another archive, a half by the
    hash of their smallest key is `development`, which calibration may read, and a half is `test`.
    """
    questions, sets = components(links)
    names, indices = np.unique(sets, return_inverse=True)
    halves = [xxhash.xxh3_64_intdigest(int(key).to_bytes(8, "little")) & 1 for key in names]
    others = np.where(np.array(halves, bool)[indices], "development", "test")
    return Split(questions, sets, parts_of(questions, sets, others, {part: seen[part] for part in reversed(PARTS)}))


def represented_split(links: np.ndarray, seen: dict[str, np.ndarray], representative_of: Represent) -> Split:
    """`run_split` of the questions that represent others: what calibration reads.

    A set of representatives with a question of training is of that part, else one with a question of test, so that
    nothing that a run is measured on is calibrated on, even through a copy.
    """
    raw = run_split(links, seen)
    pairs = np.unique(np.sort(representative_of(links.ravel()).reshape(-1, 2), axis=1), axis=0)
    members, sets = components(pairs[pairs[:, 0] != pairs[:, 1]])
    kept = {part: representative_of(raw.questions[raw.parts == part]) for part in ("test", "train")}
    return Split(members, sets, parts_of(members, sets, "development", kept))


def represented_by(representatives: pa.Table) -> Represent:
    """Return `represented` with a run's representatives (rows of REPRESENTATIVES)."""
    members, kept = (representatives[name].to_numpy() for name in ("key", "representative"))
    return lambda keys: represented(keys, members, kept)


def sets_table(split: Split) -> pa.Table:
    """Return the sets of known duplicates as rows of KNOWN_SETS."""
    columns = [pa.array(split.questions), pa.array(split.sets), pa.array(split.parts.tolist(), pa.string())]
    return pa.table(columns, schema=KNOWN_SETS)


def sets_in(table: pa.Table) -> Split:
    """Return the sets of known duplicates in rows of KNOWN_SETS."""
    keys, sets = (table[name].to_numpy() for name in ("key", "duplicates"))
    return Split(keys, sets, np.array(table["part"].to_pylist(), str))


@dataclass(frozen=True)
class Known:
    """The known and labelled pairs of the archive's questions (int64, shape (m, 2), left < right)."""

    links: np.ndarray  # duplicates, by links and by labels
    split: Split
    wrong: np.ndarray  # labelled as no duplicates; without questions of the development and test parts
    counts: dict[str, int]


def known_pairs(
    linked: np.ndarray, labelled: tuple[np.ndarray, np.ndarray], keys: np.ndarray, settings: TrainingSettings
) -> Known:
    """The known pairs of the questions among `keys` (ascending), and their split.

    `linked`, and of `labelled` the duplicates and the others, are int64 keys of shape (m, 2), left < right. A pair
    labelled 0 whose questions are in one set of duplicates is left out, and counted.
    """
    duplicates, others = labelled
    links = np.unique(pairs_among(keys, np.concatenate([duplicates, linked])), axis=0)
    split = split_links(links, settings)
    wrong = pairs_among(keys, others)
    sets = split.set_of(wrong.ravel()).reshape(-1, 2)
    contradicted = (sets[:, 0] == sets[:, 1]) & (sets[:, 0] >= 0)
    of_training = ~np.isin(wrong, split.questions_of("development", "test")).any(axis=1)
    counts = {
        "pairs of files not in the archive": sum(len(pairs) - len(pairs_among(keys, pairs)) for pairs in labelled),
        "pairs of files labelled 0 within a set of duplicates": int(contradicted.sum()),
    }
    return Known(links, split, wrong[~contradicted & of_training], counts)
