"""From stored texts to embeddings: the token ids that an encoder reads of a question, and their embedding.

All code that encodes uses this, so that a question has the same embedding wherever it is made.
"""

from dataclasses import dataclass

import pyarrow as pa

from dupq.encoders.encode import Encoded, encode
from dupq.encoders.protocol import Encoder
from dupq.settings.config import Settings
from dupq.text.questions import token_ids
from dupq.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Reader:
    """A network, its words, and the settings that say how it reads a stored text."""

    network: Encoder
    vocabulary: Vocabulary
    settings: Settings

    def encode(self, table: pa.Table, rows: int | None = None) -> tuple[Encoded, int]:
        """The embeddings of rows of TEXTS, and how many texts were truncated; `rows` is the size of a batch."""
        sequences, cut = token_ids(table, self.vocabulary, self.settings)
        return encode(self.network, sequences, rows or self.settings.encode.batch_size), cut

    def encode_alone(self, texts: pa.StringArray | pa.ChunkedArray) -> Encoded:
        """The embeddings of titles or bodies alone: tokenised texts, read unchanged."""
        sequences, _ = self.vocabulary.sequences(texts, self.settings.encoder.maximum_tokens)
        return encode(self.network, sequences, self.settings.encode.batch_size)
