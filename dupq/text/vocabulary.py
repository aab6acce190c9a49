"""The vocabulary: words and their ids. Id 0 is padding, id 1 every unknown word, words follow from id 2.

After them there may be ids that unknown words share by a hash of their letters, so that rare words stay different.
"""

import functools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq.errors import DupqError
from dupq.kernel_cache import numba
from dupq.settings.text import TextSettings
from dupq.text.normalisation import Normaliser
from dupq.text.strings import strings_of
from dupq.text.token_ids import TokenIds
from dupq.text.words import buckets_of, distinct_words

PADDING = 0
UNKNOWN = 1
FIRST_WORD = 2
_NO_ID = -1  # of a word that is left out


class Vocabulary:
    """A fixed list of words, and how a stored text is read into them."""

    def __init__(self, words: list[str], settings: TextSettings | None = None, hashed: int = 0) -> None:
        """`words` in the order of their ids, without repeats, and the number of ids that other words share.

        Without settings, texts are read as they are stored.
        """
        self.words = words
        self.hashed = hashed
        self._normaliser = Normaliser(settings or TextSettings())
        self._ids = {word: index + FIRST_WORD for index, word in enumerate(words)}
        if len(self._ids) != len(words):
            raise DupqError("the vocabulary holds a word twice")

    def __len__(self) -> int:
        """The number of ids: words, padding and unknown, and those that other words share."""
        return len(self.words) + FIRST_WORD + self.hashed

    def word(self, number: int) -> str:
        """The word of an id, for readers: "a rare word" for an id that rare words share."""
        place = number - FIRST_WORD
        return self.words[place] if 0 <= place < len(self.words) else "a rare word"

    def ids(self, text: str, maximum: int) -> np.ndarray:
        """The ids (int32) of the first `maximum` words that the encoder reads of a stored text.

        This is the plain definition, text by text; `sequences` does the same to whole columns.
        """
        return self._read(text, maximum)[0]

    def sequences(self, texts: pa.StringArray | pa.ChunkedArray, maximum: int) -> tuple[TokenIds, int]:
        """The `ids` of each text, and how many texts were cut at `maximum` words. An absent text is an empty one.

        Normalisation meets each distinct word of the texts once. Where it looks at the words around (parts of speech),
        the texts go through Python one by one.
        """
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        if not self._normaliser.is_by_word:
            read = [self._read(text or "", maximum) for text in texts.to_pylist()]
            return TokenIds.of(ids for ids, _ in read), sum(is_cut for _, is_cut in read)
        numbers, begins, words = distinct_words(self._normaliser.with_dates_masked(texts))
        forms, kept = words, np.ones(len(words), np.bool_)
        if not self._normaliser.is_identity:
            each, is_kept = self._normaliser.each_word(words.to_pylist())
            forms, kept = pa.array(each, pa.large_string()), np.array(is_kept, np.bool_)
        chosen, offsets, cut = _choose(numbers, begins, self._ids_of(forms), kept, maximum)
        return TokenIds(chosen, offsets), cut

    def _ids_of(self, forms: pa.LargeStringArray) -> np.ndarray:
        """The ids (int32) of words; _NO_ID of an absent one."""
        places = pc.index_in(forms, value_set=self._column).fill_null(-1).to_numpy()
        others = buckets_of(strings_of(forms), self.hashed) + len(self.words) if self.hashed else UNKNOWN - FIRST_WORD
        ids = np.where(places >= 0, places, others) + FIRST_WORD
        ids[forms.is_null().to_numpy(zero_copy_only=False)] = _NO_ID
        return ids.astype(np.int32)

    @functools.cached_property
    def _column(self) -> pa.LargeStringArray:
        return pa.array(self.words, pa.large_string())

    def _read(self, text: str, maximum: int) -> tuple[np.ndarray, bool]:
        if self._normaliser.is_identity:
            words = text.split(" ", maximum) if text else []
        else:
            words = self._normaliser.words(text)
        ids = [self._id_of(word) for word in words[:maximum]]
        return np.array(ids, np.int32), len(words) > maximum

    def _id_of(self, word: str) -> int:
        known = self._ids.get(word)
        if known is not None or not self.hashed:
            return known or UNKNOWN
        bucket = buckets_of(strings_of(pa.array([word], pa.large_string())), self.hashed)[0]
        return FIRST_WORD + len(self.words) + int(bucket)

    def to_bytes(self) -> bytes:
        """One word a line, UTF-8."""
        return "".join(f"{word}\n" for word in self.words).encode()

    @classmethod
    def from_bytes(cls, content: bytes, settings: TextSettings | None = None, hashed: int = 0) -> "Vocabulary":
        """What `to_bytes` wrote."""
        return cls(content.decode().split("\n")[:-1], settings, hashed)


@numba.njit(nogil=True, cache=True)
def _choose(
    numbers: np.ndarray, begins: np.ndarray, ids: np.ndarray, kept: np.ndarray, maximum: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """The ids of texts that are numbers of words, where each text's begin, and how many texts are cut at `maximum`.

    The words of text i are `numbers[begins[i]:begins[i + 1]]`; `ids` and `kept` are of words by their numbers.
    Words that are not `kept` are left out unless the text has no others, those of _NO_ID always.
    """
    chosen, offsets, end, cut = np.empty_like(numbers), np.zeros_like(begins), np.int64(0), 0
    for text in range(len(begins) - 1):
        is_filtered = False
        for place in range(begins[text], begins[text + 1]):
            is_filtered |= kept[numbers[place]]
        for place in range(begins[text], begins[text + 1]):
            number = numbers[place]
            if ids[number] == _NO_ID or (is_filtered and not kept[number]):
                continue
            if end - offsets[text] == maximum:
                cut += 1
                break
            chosen[end] = ids[number]
            end += 1
        offsets[text + 1] = end
    return chosen[:end], offsets, cut
