"""Words and their ids. Id 0 is padding, id 1 every unknown word, words follow from id 2."""

import numpy as np

from dupq.errors import DupqError

PADDING = 0
UNKNOWN = 1
_FIRST_WORD = 2


class Vocabulary:
    """A fixed list of words."""

    def __init__(self, words: list[str]) -> None:
        """`words` in the order of their ids, without repeats."""
        self.words = words
        self._ids = {word: index + _FIRST_WORD for index, word in enumerate(words)}
        if len(self._ids) != len(words):
            raise DupqError("the vocabulary holds a word twice")

    def __len__(self) -> int:
        """The number of ids: words, padding and unknown."""
        return len(self.words) + _FIRST_WORD

    def ids(self, text: str, maximum: int) -> np.ndarray:
        """The ids (int32) of the first `maximum` tokens of a text."""
        tokens = text.split(" ", maximum)[:maximum] if text else []
        return np.array([self._ids.get(token, UNKNOWN) for token in tokens], np.int32)

    def to_bytes(self) -> bytes:
        """One word a line, UTF-8."""
        return "".join(f"{word}\n" for word in self.words).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Vocabulary":
        """What `to_bytes` wrote."""
        return cls(content.decode().split("\n")[:-1])
