"""What the settings of every kind of network have in common."""

import abc
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError
from torch import nn

from dupq.encoders.protocol import Encoder
from dupq.encoders.words import word_table
from dupq.settings.encoder import EncoderSettings


def _odd(value: int) -> int:
    if value % 2 == 0:
        raise PydanticCustomError("odd", "an odd number expected")
    return value


Window = Annotated[int, Field(ge=1, le=999), AfterValidator(_odd)]
Dropout = Annotated[float, Field(ge=0, lt=1)]


class NetworkSettings(EncoderSettings, abc.ABC):
    """One kind of network: its name is the literal type of `kind`, and each field is a setting of `encoder`."""

    model_config = ConfigDict(extra="forbid")
    needs_links: ClassVar[bool] = True  # whether it takes nothing from an archive without known duplicates

    @abc.abstractmethod
    def network(self, word_vectors: np.ndarray) -> Encoder:
        """A fresh network over `word_vectors` (float32, one row an id of the vocabulary)."""

    def given(self) -> EncoderSettings:
        """All of them, as the section `encoder` of a job's settings."""
        return EncoderSettings.read(self.model_dump())

    def found(self) -> Self:
        """With absolute paths. Raises DupqError if a file or package that the network needs is missing."""
        return self


class LearnedSettings(NetworkSettings):
    """A network that is learned by gradients, word vectors too if they are not fixed."""

    word_vectors: Literal["learned", "fixed"] = Field("learned", description="What becomes of them in training.")

    def words(self, vectors: np.ndarray) -> nn.Embedding:
        """The table of word vectors."""
        return word_table(vectors, is_updated=self.word_vectors == "learned")
