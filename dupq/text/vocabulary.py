"""Words and their ids. Id 0 is padding, id 1 every unknown word, words follow from id 2."""

from collections.abc import Iterable

import numpy as np

from dupq.config import TextSettings
from dupq.errors import DupqError
from dupq.text.normalisation import Normaliser

PADDING = 0
UNKNOWN = 1
FIRST_WORD = 2


class Vocabulary:
    """A fixed list of words, and how a stored text is read into them."""

    def __init__(self, words: list[str], settings: TextSettings | None = None) -> None:
        """`words` in the order of their ids, without repeats; without settings, texts are read as they are stored."""
        self.words = words
        self._normaliser = Normaliser(settings or TextSettings())
        self._ids = {word: index + FIRST_WORD for index, word in enumerate(words)}
        if len(self._ids) != len(words):
            raise DupqError("the vocabulary holds a word twice")

    def __len__(self) -> int:
        """The number of ids: words, padding and unknown."""
        return len(self.words) + FIRST_WORD

    def ids(self, text: str, maximum: int) -> np.ndarray:
        """The ids (int32) of the first `maximum` words that the encoder reads of a stored text."""
        return self._read(text, maximum)[0]

    def sequences(self, texts: Iterable[str], maximum: int) -> tuple[list[np.ndarray], int]:
        """The ids of each text, and how many texts were cut at `maximum` words."""
        read = [self._read(text, maximum) for text in texts]
        return [ids for ids, _ in read], sum(is_cut for _, is_cut in read)

    def _read(self, text: str, maximum: int) -> tuple[np.ndarray, bool]:
        if self._normaliser.is_identity:
            words = text.split(" ", maximum) if text else []
        else:
            words = self._normaliser.words(text)
        ids = [self._ids.get(word, UNKNOWN) for word in words[:maximum]]
        return np.array(ids, np.int32), len(words) > maximum

    def to_bytes(self) -> bytes:
        """One word a line, UTF-8."""
        return "".join(f"{word}\n" for word in self.words).encode()

    @classmethod
    def from_bytes(cls, content: bytes, settings: TextSettings | None = None) -> "Vocabulary":
        """What `to_bytes` wrote."""
        return cls(content.decode().split("\n")[:-1], settings)
