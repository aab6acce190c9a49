"""What dupq reads of a question: its tokens, a hash of its content, the vocabulary ids of its words, and its terms
(hashed stems).
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq.tables import TEXTS
from dupq.text.keys import indices_among
from dupq.text.languages import normaliser_of, one_spelling, stems
from dupq.text.token_arrays import TokenIds, distinct_words, lists_in
from dupq.text.tokens import html_to_text, without_marks

_BYTES = 16  # two different contents of one question have the same hash with probability 3e-39


class ContentHashes(NamedTuple):
    """The content hashes of questions of one site."""

    ids: np.ndarray  # int64, (n,), ascending
    hashes: np.ndarray  # int64, (n, 2)

    def are_same(self, ids: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Tell for each of the questions `ids` whether it is here with the same hash (bool)."""
        if not len(self.ids):
            return np.zeros(len(ids), bool)
        indices, are_here = indices_among(self.ids, ids)
        return are_here & (self.hashes[indices] == hashes).all(axis=1)


NO_HASHES = ContentHashes(np.zeros(0, np.int64), np.zeros((0, 2), np.int64))


def content_hashes(titles: pa.Array, bodies: pa.Array) -> np.ndarray:
    """Return the BLAKE2b of each title and body (int64, shape (n, 2)).

    White space does not count; a null differs from an empty text.
    """
    columns = ([text and " ".join(text.split()) for text in column.to_pylist()] for column in (titles, bodies))
    lines = ("\n".join("" if text is None else f":{text}" for text in row) for row in zip(*columns, strict=True))
    hashes = [hashlib.blake2b(row.encode(), digest_size=_BYTES).digest() for row in lines]
    return np.frombuffer(b"".join(hashes), np.int64).reshape(-1, 2)


# The vocabulary: id 0 is padding, id 1 any unknown word, the known words follow from id 2.

PADDING = 0
UNKNOWN = 1
FIRST_WORD = 2


class Vocabulary:
    """A fixed list of words, and the normaliser that reads stored texts into them."""

    def __init__(self, words: list[str], settings: TextSettings | None = None) -> None:
        """Take distinct `words` in the order of their ids. Without settings, texts are read as they are stored."""
        self.words = words
        self._normaliser = normaliser_of(settings or TextSettings())
        self._column = pa.array(words, pa.large_string())

    def __len__(self) -> int:
        """Return the number of ids, padding and unknown included."""
        return len(self.words) + FIRST_WORD

    def word(self, number: int) -> str:
        """Return the word of an id for display: "a rare word" for UNKNOWN."""
        index = number - FIRST_WORD
        return self.words[index] if 0 <= index < len(self.words) else "a rare word"

    def sequences(self, texts: pa.StringArray | pa.ChunkedArray, maximum: int) -> tuple[TokenIds, int]:
        """Return the ids of each stored text's first `maximum` words, and how many texts have more words.

        A null counts as an empty text. Each distinct word is normalised once.
        """
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        numbers, offsets, forms = self._normaliser.in_forms(self._normaliser.read(texts))
        indices = pc.index_in(forms, value_set=self._column).fill_null(UNKNOWN - FIRST_WORD)
        word_ids, lengths = indices.to_numpy().astype(np.int32) + FIRST_WORD, np.diff(offsets)
        is_read = np.ones(len(numbers), bool)
        for row in np.flatnonzero(lengths > maximum).tolist():
            is_read[offsets[row] + maximum : offsets[row + 1]] = False
        ends = np.concatenate([[0], np.cumsum(np.minimum(lengths, maximum))])
        return TokenIds(word_ids[numbers[is_read]], ends), int((lengths > maximum).sum())

    def to_bytes(self) -> bytes:
        """Return the words in UTF-8, one per line."""
        return "".join(f"{word}\n" for word in self.words).encode()

    @classmethod
    def from_bytes(cls, content: bytes, settings: TextSettings | None = None) -> "Vocabulary":
        """Read what `to_bytes` returned."""
        return cls(content.decode().split("\n")[:-1], settings)


def question_text(title: str, body_html: str, settings: TextSettings) -> tuple[str, str]:
    """Return a question's title and its whole text as `texts_table` stores them."""
    [row] = texts_table(pa.array([0]), pa.array([title]), pa.array([body_html]), settings).to_pylist()
    return row["title"], row["text"]


def texts_table(keys: pa.Array, titles: pa.Array, bodies: pa.Array, settings: TextSettings) -> pa.Table:
    """Return the TEXTS table of questions in their order.

    Both are tokens joined by single spaces. The text is the title, with the body if `settings.fields` says so.
    """
    own = [title and without_marks(title) for title in titles.to_pylist()]
    titles = normaliser_of(settings).stored(pa.array(own, pa.large_string()))
    texts = titles
    if settings.fields != "title":
        plain = [html_to_text(body, settings.code) for body in bodies.to_pylist()]
        body_tokens = normaliser_of(settings).stored(pa.array(plain, pa.large_string()))
        texts = pc.ascii_trim(pc.binary_join_element_wise(titles, body_tokens, pa.scalar(" ", pa.large_string())), " ")
    return pa.table([keys, titles.cast(pa.string()), texts.cast(pa.string())], schema=TEXTS)


def token_ids(table: pa.Table, vocabulary: Vocabulary, settings: Settings) -> tuple[TokenIds, int]:
    """Return the ids that an encoder with these settings reads of rows of TEXTS, and how many texts were truncated.

    The title, which begins the stored text, is repeated until it is there `text.title_times` times.
    """
    texts, times = table["text"], settings.text.title_times
    for _ in range(times - 1):
        texts = pc.binary_join_element_wise(table["title"], texts, " ")
    return vocabulary.sequences(texts if times == 1 else pc.ascii_trim(texts, " "), settings.encoder.maximum_tokens)


class TitlesAndBodies(NamedTuple):
    """Questions with both a title and a body."""

    keys: np.ndarray  # int64, (n,)
    titles: TokenIds
    bodies: TokenIds

    def take(self, rows: np.ndarray) -> "TitlesAndBodies":
        """Return the questions at some row numbers, or for which a mask is true."""
        return TitlesAndBodies(self.keys[rows], self.titles.take(rows), self.bodies.take(rows))


def titles_and_bodies(texts: pa.Table, vocabulary: Vocabulary, settings: Settings) -> TitlesAndBodies:
    """Return the rows of TEXTS with both a title and a body, in their order."""
    table = texts.filter(pc.and_(pc.not_equal(texts["title"], ""), pc.not_equal(texts["title"], texts["text"])))
    rows = zip(table["title"].to_pylist(), table["text"].to_pylist(), strict=True)
    bodies = pa.chunked_array([[text[len(title) + 1 :] for title, text in rows]], pa.string())
    most = settings.encoder.maximum_tokens
    sides = (vocabulary.sequences(column, most)[0] for column in (table["title"], bodies))
    return TitlesAndBodies(table["key"].to_numpy(), *sides)


# Texts as sets of terms, which are hashed stems, so that two texts are compared by merging sorted numbers.
#
# The table of document counts then has a fixed size, however many words an archive has. Two stems that share a bucket
# count as one term: with 4 million buckets this happens in one of 400 pairs of texts of 100 words.

TERM_BITS = 22
BUCKETS = 1 << TERM_BITS


class Terms(NamedTuple):
    """The terms of n texts. Text i has the distinct `ids[offsets[i]:offsets[i + 1]]`, ascending, `counts` times."""

    offsets: np.ndarray  # int64, (n + 1,)
    ids: np.ndarray  # int32, below BUCKETS
    counts: np.ndarray  # uint8, at most 255


def terms_of(texts: pa.StringArray, language: str) -> Terms:
    """Return the terms of stored texts (tokens joined by single spaces)."""
    numbers, begins, words = distinct_words(texts)
    stem = stems(language)
    buckets = np.array([bucket_of(stem(one_spelling(word))) for word in words.to_pylist()], np.int64)
    return _counted(np.repeat(np.arange(len(texts)), np.diff(begins)), buckets[numbers], len(texts))


def bucket_of(term: str) -> int:
    """Return the term id of a stem or a tag, below BUCKETS."""
    return xxhash.xxh3_64_intdigest(term.encode()) & (BUCKETS - 1)


def tags_of(tags: pa.ListArray) -> Terms:
    """Return the tags of questions as terms: each a whole tag, not its stem."""
    owners, flat = pc.list_parent_indices(tags), tags.flatten()
    owners, names = owners.filter(flat.is_valid()), pc.dictionary_encode(flat.drop_null())
    hashed = np.array([bucket_of(name) for name in names.dictionary.to_pylist()], np.int64)
    terms = _counted(owners.to_numpy().astype(np.int64), hashed[names.indices.to_numpy()], len(tags))
    return terms._replace(counts=np.ones(len(terms.ids), np.uint8))


def _counted(owners: np.ndarray, ids: np.ndarray, texts: int) -> Terms:
    """Return the terms of `texts` texts, where `ids[i]` occurs once in text `owners[i]` (both int64)."""
    distinct, counts = np.unique(owners << TERM_BITS | ids, return_counts=True)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(distinct >> TERM_BITS, minlength=texts))])
    return Terms(offsets, (distinct & (BUCKETS - 1)).astype(np.int32), np.minimum(counts, 255).astype(np.uint8))


def lists_of(terms: Terms) -> list[pa.ListArray]:
    """Return the ids and the counts of terms as columns, with a list for each text."""
    offsets = pa.array(terms.offsets.astype(np.int32))
    return [pa.ListArray.from_arrays(offsets, pa.array(values)) for values in (terms.ids, terms.counts)]


def document_counts(terms: Terms) -> np.ndarray:
    """Return in how many texts each term occurs (int64, shape (BUCKETS,))."""
    return np.bincount(terms.ids, minlength=BUCKETS)


def rarities(counts: np.ndarray, questions: int) -> np.ndarray:
    """Return the weight (float32) of each term, given in how many questions it is: ln(1 + (n - c + .5) / (c + .5)).

    This is BM25's inverse document frequency in Lucene's form; never below 0.
    """
    counts = np.minimum(counts, questions)
    return np.log1p((questions - counts + 0.5) / (counts + 0.5)).astype(np.float32)


def rare_words(table: np.ndarray, questions: int, language: str) -> Callable[[str], bool]:
    """Return a predicate that tells whether at most one question has a word. `table`: `rarities` for `questions`."""
    stem, least = stems(language), rarities(np.ones(1, np.int64), questions)[0]
    return lambda word: bool(table[bucket_of(stem(one_spelling(word)))] >= least)


def each_once(column: pa.ChunkedArray) -> Terms:
    """Return a column of lists as terms that occur once."""
    offsets, ids = lists_in(column)
    return Terms(offsets, ids, np.ones(len(ids), np.uint8))
