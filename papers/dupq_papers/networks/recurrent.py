"""Siamese LSTM, GRU and attentive LSTM of Othman et al. (DKE 2021), sections 3.3 to 3.5."""

from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from dupq.encoders.protocol import Embedding, LearnedSettings, padded, token_mask
from dupq.settings.sections import Length
from dupq.text.token_arrays import TokenIds
from dupq_papers.networks.distances import DistanceEncoder, Similarity
from dupq_papers.networks.products import word_products

_ROWS = 256  # texts of a group


class RecurrentSettings(LearnedSettings):
    """Settings of Recurrent."""

    kind: Literal["lstm", "gru"] = "lstm"
    units: Length = Field(300, description="Length of a state, and of an embedding.")
    directions: Literal["forward", "both"] = Field(
        "forward", description="both: a second one reads backwards, and an embedding is twice as long."
    )
    pooling: Literal["final", "attention"] = Field(
        "final", description="The state after the last word, or a mean of all by attention."
    )
    similarity: Similarity = Field(
        "cosine", description="Of two embeddings; manhattan is exp(-L1), euclidean exp(-L2)."
    )

    def network(self, word_vectors: np.ndarray) -> "Recurrent":
        """See NetworkSettings."""
        words, reads_back = self.words(word_vectors), self.directions == "both"
        return Recurrent(words, self.kind, self.units, self.pooling, self.similarity, reads_back)


class Recurrent(DistanceEncoder):
    """The final state h_T of an LSTM (equations 1 to 6) or GRU, or with attention a mean of all its states.

    Attention, equations 8 to 10: e_i = tanh(W_h h_i + b_h), alpha = softmax over i of e_i u_h, r = sum_i alpha_i h_i.
    The paper's h_i sums up "the question up to x_i" (section 3.5), but its r is in R^2L, "L the size of each LSTM"
    (equation 10). As in Yang et al. 2016, whose attention it uses, h_i may join the states of a forward and of a
    backward cell; their final states are those after the last and after the first word. The paper has no equations for
    the GRU, so it is that of Cho et al. 2014 as torch computes it.

    All states are computed up to the padded length, and those after the end of a text are ignored. So a text's matrices
    have the same shape in every batch, unlike with packed sequences.
    """

    def __init__(
        self, words: nn.Embedding, cell: str, units: int, pooling: str, kind: Similarity, reads_back: bool = False
    ) -> None:
        """Begin with the x_t = `words` by id; `cell` is "lstm" or "gru"; `pooling` is "final" or "attention"."""
        super().__init__()
        self.dimensions = 2 * units if reads_back else units
        self.kind = kind
        self.words = words
        cells: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
        self.cell = cells[cell](words.embedding_dim, units, batch_first=True)
        self.back = cells[cell](words.embedding_dim, units, batch_first=True) if reads_back else None
        self.attention = Attention(self.dimensions) if pooling == "attention" else None
        _start(self.cell)
        if self.back is not None:
            _start(self.back)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        rows, last = torch.arange(len(ids), device=ids.device), (lengths - 1).clamp_min(0)
        states = self._states(self.cell, ids)  # (B, L, L of the paper)
        final = states[rows, last]
        if self.back is not None:
            reversed_order = _reversed(ids, lengths)
            backward = self._states(self.back, ids.gather(1, reversed_order))
            final = torch.cat([final, backward[rows, last]], dim=1)
            states = torch.cat([states, backward[rows[:, None], reversed_order]], dim=2)
        pooled = final if self.attention is None else self.attention(states, token_mask(ids, lengths))
        return Embedding(pooled * (lengths > 0)[:, None])

    def _states(self, cell: nn.LSTM | nn.GRU, ids: torch.Tensor) -> torch.Tensor:
        """Return the states (B, L, D) of a cell, in full precision: cells would use float16 under any autocast."""
        with torch.autocast(ids.device.type, enabled=False):
            states: torch.Tensor = cell(self.words(ids))[0]
        return states

    def dense_unpadded(self, texts: TokenIds) -> torch.Tensor | None:
        """Compute the states of groups of texts of similar length; see Encoder.

        A group always has the same number of rows, so products have the same shape for every text. None with a backward
        cell: attention would need all states of both cells.
        """
        if self.back is not None:
            return None
        steps = _Steps(self.cell)
        products = word_products(self.words, steps.of_words[None], 0, None, texts)
        rows, row_ids = products.table[:, 0] + steps.bias_of_words, TokenIds(products.rows, texts.offsets)
        pooled = rows.new_empty(len(texts), self.dimensions)
        longest_first = np.argsort(-texts.lengths, kind="stable")
        for start in range(0, len(texts), _ROWS):
            indices = longest_first[start : start + _ROWS]
            lengths = np.zeros(_ROWS, np.int64)
            lengths[: len(indices)] = texts.lengths[indices]
            group = torch.from_numpy(padded(row_ids, indices, _ROWS, int(lengths[0])))
            pooled[indices] = self._group(steps, rows, group, torch.from_numpy(lengths))[: len(indices)]
        return pooled

    def _group(self, steps: "_Steps", rows: torch.Tensor, group: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the pooled states (B, D) of texts whose words are the `rows` at the indices `group` (B, L)."""
        state = steps.first(len(group), rows)
        attended = None if self.attention is None else _Attended(self.attention, state[0])
        for word in range(group.shape[1]):
            is_word = (word < lengths)[:, None]
            state = tuple(
                torch.where(is_word, after, before)
                for after, before in zip(steps.next(rows[group[:, word]], *state), state, strict=True)
            )
            if attended is not None:
                attended.add(state[0], is_word)
        return state[0] if attended is None else attended.mean()


def _reversed(ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the positions (B, L) that reverse the words of each row and leave its padding; it is its own inverse."""
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    return torch.where(token_mask(ids, lengths), lengths[:, None] - 1 - positions, positions)


class _Steps:
    """The cell of an LSTM or a GRU, word by word, given the products of the words.

    tanh(x) is computed as 2 sigmoid(2 x) - 1, which is six times as fast in torch; the weights include the inner 2.
    """

    def __init__(self, cell: nn.LSTM | nn.GRU) -> None:
        of_words, of_states, bias, second_bias = (parameter.detach().clone() for parameter in cell.parameters())
        units = cell.hidden_size
        self._is_lstm = isinstance(cell, nn.LSTM)
        # only the candidate state goes through tanh; torch's order of gates is i, f, c, o and r, z, n
        for parameter in (of_words, of_states, bias, second_bias):
            parameter[2 * units : 3 * units] *= 2
        self.of_words = of_words.T.contiguous()  # (d, gates * D)
        self.bias_of_words = bias
        self._of_states, self._bias = of_states.T.contiguous(), second_bias

    def first(self, rows: int, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the states of `rows` texts before their first word: h and, for an LSTM, c."""
        return tuple(like.new_zeros(rows, len(self._of_states)) for _ in range(1 + self._is_lstm))

    def next(self, words: torch.Tensor, *state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the states after a word, given its products (B, gates * D)."""
        h = state[0]
        of_h = torch.addmm(self._bias, h, self._of_states)
        if self._is_lstm:
            i, f, candidate, o = (words + of_h).sigmoid_().chunk(4, dim=1)
            c = f * state[1] + i * (2 * candidate - 1)
            return o * (2 * torch.sigmoid(2 * c) - 1), c
        units = h.shape[1]
        r, z = (words[:, : 2 * units] + of_h[:, : 2 * units]).sigmoid_().chunk(2, dim=1)
        n = 2 * torch.sigmoid(words[:, 2 * units :] + r * of_h[:, 2 * units :]) - 1
        return ((1 - z) * n + z * h,)


class _Attended:
    """The weighted sum of Attention, state by state, with an online softmax (Milakov and Gimelshein 2018).

    The highest e_i u_h so far is subtracted from all exponents; a higher one scales down the earlier sum.
    """

    def __init__(self, attention: "Attention", like: torch.Tensor) -> None:
        """Begin with no states; `like` (B, D) has their shape."""
        self._attention = attention
        self._highest = like.new_full((len(like), 1), torch.finfo(like.dtype).min)
        self._total, self._sum = like.new_zeros(len(like), 1), torch.zeros_like(like)

    def add(self, states: torch.Tensor, is_word: torch.Tensor) -> None:
        """Add a state (B, D) of each text where `is_word` (B, 1) is true."""
        nearness = self._attention.nearness(states)[:, None].masked_fill(~is_word, -torch.inf)
        highest = torch.maximum(self._highest, nearness)
        scale, weight = torch.exp(self._highest - highest), torch.exp(nearness - highest)
        self._total = self._total * scale + weight
        self._sum = self._sum * scale + weight * states
        self._highest = highest

    def mean(self) -> torch.Tensor:
        """Return r (B, D), zero for texts without states."""
        return self._sum / torch.where(self._total > 0, self._total, 1.0)


class Attention(nn.Module):
    """The weighted sum of all states by their nearness to a learned context vector u_h, section 3.5."""

    def __init__(self, units: int) -> None:
        """Begin with random weights; W_h is (units, units), `units` is D."""
        super().__init__()
        self.projection = nn.Linear(units, units)  # W_h, b_h
        self.context = nn.Parameter(torch.randn(units))  # u_h, "randomly initialized"

    def forward(self, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return r (B, D) of `states` (B, L, D), over the positions where `tokens` (B, L) is true."""
        nearness = self.nearness(states)  # (B, L)
        nearness = nearness.masked_fill(~tokens, torch.finfo(nearness.dtype).min)
        weights = torch.softmax(nearness, dim=1)  # equation 9
        return (weights[:, :, None] * states).sum(dim=1)  # equation 10

    def nearness(self, states: torch.Tensor) -> torch.Tensor:
        """Return e_i u_h (…) of `states` (…, D), equation 8."""
        return torch.tanh(self.projection(states)) @ self.context


def _start(cell: nn.LSTM | nn.GRU) -> None:
    """Initialise a cell as Keras does, which the paper uses (section 5.3); the paper gives no values.

    Glorot for W, orthogonal for U, zero biases, but one for forget gates. The LSTM has one b_k per gate, as in the
    equations: torch's second one stays zero. The GRU keeps both, because its candidate state needs them.
    """
    units = cell.hidden_size
    of_words, of_states, bias, second_bias = cell.parameters()  # with the rows of all gates
    for matrix in of_words.data.split(units):
        nn.init.xavier_uniform_(matrix)
    for matrix in of_states.data.split(units):
        nn.init.orthogonal_(matrix)
    nn.init.zeros_(bias)
    nn.init.zeros_(second_bias)
    if isinstance(cell, nn.LSTM):
        nn.init.ones_(bias.data[units : 2 * units])  # torch's order of gates: i, f, c, o
        second_bias.requires_grad_(False)
