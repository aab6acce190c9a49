"""The words of a saved encoder. Separate from its network, so that tokenising needs no torch."""

from dupq import storage
from dupq.encoders.description import read_description, settings_of
from dupq.errors import DupqError
from dupq.settings.config import Settings
from dupq.text.vocabulary import Vocabulary


def read_vocabulary(uri: str) -> tuple[Vocabulary, Settings]:
    """The words of the encoder in the folder `uri`, and the settings that say how it reads a stored text.

    Raises DupqError if a file is missing or damaged.
    """
    settings = settings_of(read_description(uri), uri)
    place = storage.join(uri, "vocabulary.txt")
    return vocabulary_of(storage.read_bytes(place), settings, place), settings


def vocabulary_of(content: bytes, settings: Settings, place: str) -> Vocabulary:
    """The words in the file `place`. Raises DupqError naming it for what is no list of words."""
    try:
        return Vocabulary.from_bytes(content, settings.text, settings.word_vectors.hashed)
    except (UnicodeDecodeError, DupqError) as error:
        raise DupqError(
            f"{place}: not a list of words in UTF-8, each once ({error}); train the encoder anew"
        ) from error
