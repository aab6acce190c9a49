"""From stored texts to embeddings: the token ids that an encoder reads of a question, and their embedding.

All code that encodes uses this, so that a question has the same embedding wherever it is made.
"""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dupq.encoders.bags import Bag, Encoded
from dupq.neighbours.measure import Measure
from dupq.settings.config import Settings
from dupq.text.questions import token_ids
from dupq.text.token_ids import TokenIds
from dupq.text.vocabulary import Vocabulary


class Network(Protocol):
    """What every encoder has: an `Encoder`, which is a network of torch, or a `Bag`, which needs none."""

    @property
    def dimensions(self) -> int:
        """The length of an embedding."""

    @property
    def measure(self) -> Measure:
        """How two embeddings are scored."""

    @property
    def trainable(self) -> bool:
        """Whether anything is learned by gradients."""


@dataclass(frozen=True)
class Reader:
    """A network, its words, and the settings that say how it reads a stored text."""

    network: Network
    vocabulary: Vocabulary
    settings: Settings

    def encode(self, table: pa.Table, rows: int | None = None) -> tuple[Encoded, int]:
        """The embeddings of rows of TEXTS, and how many texts were truncated; `rows` is the size of a batch."""
        sequences, cut = token_ids(table, self.vocabulary, self.settings)
        return self._encoded(sequences, rows or self.settings.encode.batch_size), cut

    def encode_alone(self, texts: pa.StringArray | pa.ChunkedArray) -> Encoded:
        """The embeddings of titles or bodies alone: tokenised texts, read unchanged."""
        sequences, _ = self.vocabulary.sequences(texts, self.settings.encoder.maximum_tokens)
        return self._encoded(sequences, self.settings.encode.batch_size)

    def _encoded(self, sequences: TokenIds, rows: int) -> Encoded:
        if isinstance(self.network, Bag):
            return self.network.encode(sequences)
        from dupq.encoders.encode import encode
        from dupq.encoders.protocol import Encoder

        assert isinstance(self.network, Encoder)
        return encode(self.network, sequences, rows)
