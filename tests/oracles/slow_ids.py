"""The words that an encoder reads of a text, and their ids, text by text: the oracle of `Vocabulary.sequences`."""

import numpy as np
import pyarrow as pa

from dupq.text.languages import Normaliser
from dupq.text.questions import FIRST_WORD, UNKNOWN, Vocabulary


def words_read(normaliser: Normaliser, text: str) -> list[str]:
    """The words that an encoder reads of a stored text, in their forms."""
    read = normaliser.read(pa.array([text], pa.large_string()))[0].as_py()
    return [form for form in normaliser.each_form(read.split(" ")) if form] if read else []


def slow_ids(vocabulary: Vocabulary, text: str, maximum: int) -> np.ndarray:
    """The ids (int32) of the first `maximum` words that an encoder reads of a stored text."""
    numbers = {word: number for number, word in enumerate(vocabulary.words, FIRST_WORD)}
    words = words_read(vocabulary._normaliser, text)[:maximum]
    return np.array([numbers.get(word, UNKNOWN) for word in words], np.int32)
