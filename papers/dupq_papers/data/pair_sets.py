"""Sets of questions with known pairs, read as collections in memory: one function a kind of source.

Texts are tokenised as every archive's are. Texts that are no HTML go the same way, escaped.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dupq.archive import question_shards, read_shard
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import Labels, usable
from dupq.links import known_duplicates, read_pairs
from dupq.settings.sections import TextSettings
from dupq.tables import QUESTIONS
from dupq.text.keys import Sites, parse_id
from dupq.text.questions import texts_table
from dupq_papers.data.semeval import Original
from dupq_papers.data.semeval_scores import Candidates
from dupq_papers.data.text_files import read_text
from dupq_papers.systems.collection import Collection

_LABELS = {"1": True, "0": False}
_ARABIC_HEADING = ["question1", "question2", "duplicate"]


@dataclass(frozen=True)
class PairSet:
    """Questions, and what is known of their pairs; `labels.others` is empty where only duplicates are known."""

    collection: Collection
    labels: Labels


def archive(questions: str, links: str, settings: TextSettings) -> PairSet:
    """An ingested archive and its duplicate links. Keys are those of `dupq.text.keys`, of all its sites.

    Raises DupqError as `question_shards`, `read_shard` and `known_duplicates` do.
    """
    shards, sites = question_shards(questions)
    columns = ["question_id", "title", "body_html", "tags"]
    tables = [read_shard(shard, QUESTIONS, columns) for shard in shards]
    keys = np.concatenate(
        [
            sites.pack(shard.site, table["question_id"].to_numpy(), shard.uri)
            for shard, table in zip(shards, tables, strict=True)
        ]
    )
    rows = pa.concat_tables(tables)
    collection = _collection(
        keys, rows["title"].to_pylist(), rows["body_html"].to_pylist(), settings, rows["tags"].to_pylist()
    )
    pairs = known_duplicates(links, sites)
    return PairSet(collection, usable(pairs, np.ones(len(pairs), bool), collection.keys))


def quora(questions: str, pairs: str, settings: TextSettings) -> PairSet:
    """Questions (lines of an id and a text, perhaps packed by xz) and labelled pairs of ids, as in `read_pairs`.

    Keys are the ids; a question is its title alone. Raises DupqError naming file and line.
    """
    texts = {}
    for where, fields in _lines(questions, ["id", "question"]):
        key = parse_id(fields[0], where)
        if key in texts:
            raise DupqError(f"{where}: question {key} comes twice")
        texts[key] = fields[1]
    keys = np.array(list(texts), np.int64)
    collection = _collection(keys, list(texts.values()), [""] * len(keys), settings)
    ends, is_duplicate = read_pairs(read_text(pairs).encode(), Sites(["quora"]), pairs)
    return PairSet(collection, usable(ends, is_duplicate, collection.keys))


def arabic(pairs: str, settings: TextSettings) -> PairSet:
    """Lines of two texts and 1 or 0, as of NSURL-2019 task 8. Keys number the texts as they first appear, from 0 on.

    A pair of a text with itself is left out, and counted. Raises DupqError naming file and line.
    """
    places: dict[str, int] = {}
    ends, labels = [], []
    for where, fields in _lines(pairs, _ARABIC_HEADING):
        if fields[2] not in _LABELS:
            raise DupqError(f"{where}: label '{fields[2][:50]}'; 1 (duplicates) or 0 expected")
        ends.append([places.setdefault(text, len(places)) for text in fields[:2]])
        labels.append(_LABELS[fields[2]])
    collection = _collection(np.arange(len(places)), list(places), [""] * len(places), settings)
    return PairSet(collection, _labels(np.array(ends, np.int64), np.array(labels, bool), collection.keys))


def semeval(originals: Sequence[Original], settings: TextSettings) -> tuple[PairSet, list[Candidates]]:
    """The questions of SemEval, and the candidates of each original, in the order of `originals`.

    Keys number the originals and candidates as they first appear, from 0 on: each original is followed by its
    candidates, whose keys rise with the search engine's rank. Labelled pairs are those of an original and a candidate.
    Of the CSV file a question is a body without a title: text.fields=title has nothing of it.
    """
    found, start = [], 0
    questions: list[tuple[str, str]] = []
    for one in originals:
        keys = np.arange(start + 1, start + 1 + len(one.candidates))
        relevant = np.array([candidate.is_relevant for candidate in one.candidates], bool)
        found.append(Candidates(start, keys, relevant))
        questions += [(one.subject, one.body), *((each.subject, each.body) for each in one.candidates)]
        start += 1 + len(keys)
    bodies = [html.escape(body) for _, body in questions]
    collection = _collection(np.arange(start), [subject for subject, _ in questions], bodies, settings)
    ends = np.concatenate([np.stack([np.full(len(keys), query), keys], axis=1) for query, keys, _ in found])
    labels = np.concatenate([relevant for _, _, relevant in found])
    return PairSet(collection, _labels(ends, labels, collection.keys)), found


def _labels(ends: np.ndarray, is_duplicate: np.ndarray, keys: np.ndarray) -> Labels:
    """What can be used of labelled pairs (int64, (m, 2)), without those of a question with itself."""
    differ = ends[:, 0] != ends[:, 1]
    found = usable(np.sort(ends[differ], axis=1), is_duplicate[differ], keys)
    counts = found.counts | {"lines": len(ends), "of_itself": int((~differ).sum())}
    return replace(found, counts=counts)


def _collection(
    keys: np.ndarray,
    titles: Sequence[str],
    bodies: Sequence[str],
    settings: TextSettings,
    tags: Sequence[Sequence[str]] | None = None,
) -> Collection:
    """The collection of questions in any order; titles are plain, bodies HTML."""
    order = np.argsort(keys, kind="stable")
    table = texts_table(pa.array(keys), pa.array(titles, pa.string()), pa.array(bodies, pa.string()), settings)
    shown, texts = (table[name].take(order).combine_chunks() for name in ("title", "text"))
    # the text is the title and then the body, or the title alone
    rests = [whole[len(title) :].lstrip(" ") for title, whole in zip(shown.to_pylist(), texts.to_pylist(), strict=True)]
    return Collection(
        keys[order],
        texts,
        shown,
        pa.array(rests, pa.string()),
        tuple(tuple(tags[row]) for row in order) if tags is not None else ((),) * len(keys),
        settings.language,
    )


def _lines(uri: str, heading: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The location (for messages) and the fields of every line but the heading and blank ones."""
    lines = read_text(uri).split("\n")
    if [field.strip() for field in lines[0].split("\t")] != heading:
        raise DupqError(f"{uri}, line 1: a heading of {', '.join(heading)} expected, with tabs between")
    if not any(line.strip() for line in lines[1:]):
        raise DupqError(f"{uri}: nothing below the heading")
    for number, line in enumerate(lines[1:], 2):
        fields = [field.strip() for field in line.split("\t")]
        if line.strip():
            if len(fields) != len(heading):
                raise DupqError(f"{uri}, line {number}: {len(fields)} columns; {len(heading)} expected")
            yield f"{uri}, line {number}", fields
