"""How two embeddings are scored. Separate from the networks, so that importing it loads no torch."""

from dataclasses import asdict, dataclass
from typing import Literal

Kind = Literal["cosine", "manhattan", "euclidean"]


@dataclass(frozen=True)
class Measure:
    """score = dense * s_kind(dense vectors) + lexical * cosine(bags of words). Higher is more alike.

    s_kind of two dense vectors a and b is
    cosine     a b / (|a| |b|), 0 where one of them is zero (Bogdanova et al. 2015, section 4.2)
    manhattan  exp(-|a - b|_1) (Othman et al. 2021, equation 7)
    euclidean  exp(-|a - b|_2): Othman et al. compare with it and give no equation; this is theirs with the
               Euclidean norm, so that it is between 0 and 1 too
    The two weights are the beta_2 and beta_1 of dos Santos et al. 2015, section 2.4.
    """

    kind: Kind = "cosine"
    dense: float = 1.0
    lexical: float = 0.0  # 0: the encoder has no bag of words

    @property
    def highest(self) -> float:
        """The highest score that two embeddings can have."""
        return abs(self.dense) + abs(self.lexical)

    def to_dict(self) -> dict[str, object]:
        """For encoder.json."""
        return asdict(self)
