"""A sentence-transformers model as an encoder: for comparison, or as a teacher that an encoder learns from.

The model must be at the same path on every machine that encodes; dupq/encoders/sentence_models.py reads it.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.protocol import Embedding, Encoder, NetworkSettings, WordTable
from dupq.encoders.sentence_models import load_model, model_fingerprint, model_folder
from dupq.errors import DupqError
from dupq.text.questions import FIRST_WORD


class PretrainedSettings(NetworkSettings):
    """Settings of Pretrained."""

    needs_links: ClassVar[bool] = False
    kind: Literal["sentence_transformers"] = "sentence_transformers"
    model: str = Field(
        "", description="Folder of the model, a package that has one, or a name on the Hugging Face hub."
    )

    def resolved(self) -> Self:
        """See NetworkSettings."""
        return self.changed(model=model_folder(self.model, f"encoder.model={self.model}"))

    def network(self, word_vectors: np.ndarray) -> "Pretrained":
        """See NetworkSettings."""
        return Pretrained(WordTable(word_vectors, is_updated=False), self.model)


class Pretrained(Encoder):
    """A network that turns token ids back into words of the vocabulary and has a model of texts read these.

    What the tokeniser drops (case, punctuation, code, addresses) and words outside the vocabulary are lost. The model
    truncates texts that are too long for it, which is not counted. The model's weights are not saved with the encoder.
    A hash of its files is, and another model in their place is an error.
    """

    fingerprint: torch.Tensor  # int64, (): hash of the model's files; 0 before `prepare`

    def __init__(self, words: nn.Embedding, folder: str) -> None:
        """Load the model in `folder`. Raises DupqError if there is none, or sentence-transformers is missing."""
        super().__init__()
        self.words = words  # part of the protocol; the vectors are not read
        self._folder = folder
        self._words: dict[int, str] = {}  # by id
        # in a list, so that its weights do not become this network's
        self._model = [load_model(model_folder(folder, f"encoder.model={folder}"))]
        self.dimensions = len(self._model[0].encode("text", show_progress_bar=False))
        self.register_buffer("fingerprint", torch.zeros((), dtype=torch.int64))
        self._is_checked = False

    def set_vocabulary(self, words: list[str]) -> None:
        """See Encoder."""
        self._words = dict(enumerate(words, FIRST_WORD))

    def prepare(self, texts: Iterable[np.ndarray], pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        """Store the fingerprint of the model; `texts` and `pairs` are not read."""
        self.fingerprint.fill_(model_fingerprint(self._folder))

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder. The model pads the texts of a batch together, so the last bits depend on the batch."""
        if not self._is_checked and int(self.fingerprint) != model_fingerprint(self._folder):
            raise DupqError(f"{self._folder}: not the model that the encoder was made with; train it again")
        self._is_checked = True
        every = (" ".join(filter(None, map(self._words.get, row))) for row in ids.tolist())  # without unknown words
        texts = {row: text for row, text in enumerate(every) if text}
        dense = torch.zeros(len(ids), self.dimensions, device=ids.device)
        if texts:
            model, known = self._model[0].to(str(ids.device)), [*texts.values()]
            vectors = model.encode(known, batch_size=len(known), convert_to_tensor=True, show_progress_bar=False)
            dense[[*texts]] = vectors.to(dense.device, dense.dtype)
        return Embedding(dense)
