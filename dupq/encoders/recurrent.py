"""Siamese LSTM, GRU and attentive LSTM of Othman et al. (DKE 2021), sections 3.3 to 3.5."""

import torch
from torch import nn

from dupq.encoders.measure import Kind
from dupq.encoders.protocol import Embedding, Encoder
from dupq.encoders.words import inside


class Recurrent(Encoder):
    """The final state h_T of an LSTM (equations 1 to 6) or GRU, or with attention a mean of all its states.

    Attention, equations 8 to 10: e_i = tanh(W_h h_i + b_h), alpha = softmax over i of e_i u_h, r = sum_i alpha_i h_i.
    The paper has r in R^2L once, but h_i sums up "the question up to x_i": there is one direction, and r is in R^L.
    The GRU, for which the paper has no equations, is that of Cho et al. 2014 as torch computes it.

    All states are computed up to the padded length, and those behind the end of a text are never looked at: so
    every text meets the same matrix shapes whatever its company, which a packed sequence does not give.
    """

    def __init__(self, words: nn.Embedding, cell: str, units: int, pooling: str, kind: Kind) -> None:
        """`words` are the x_t by id; `cell` is "lstm" or "gru"; `pooling` is "final" or "attention"."""
        super().__init__()
        self.dimensions = units
        self.kind = kind
        self.words = words
        cells: dict[str, type[nn.LSTM | nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
        self.cell = cells[cell](words.embedding_dim, units, batch_first=True)
        self.attention = Attention(units) if pooling == "attention" else None
        _start(self.cell)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Embedding:
        """See Encoder."""
        states = self.cell(self.words(ids))[0]  # (B, L, D)
        if self.attention is not None:
            pooled = self.attention(states, inside(ids, lengths))
        else:
            pooled = states[torch.arange(len(ids), device=ids.device), (lengths - 1).clamp_min(0)]
        return Embedding(pooled * (lengths > 0)[:, None])


class Attention(nn.Module):
    """Section 3.5: the weighted sum of all states, by how near they are to a learned context vector u_h."""

    def __init__(self, units: int) -> None:
        """W_h is (units, units)."""
        super().__init__()
        self.projection = nn.Linear(units, units)  # W_h, b_h
        self.context = nn.Parameter(torch.randn(units))  # u_h, "randomly initialized"

    def forward(self, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """r (B, D) of `states` (B, L, D), over the places where `tokens` (B, L) is true."""
        nearness = torch.tanh(self.projection(states)) @ self.context  # (B, L), equation 8
        nearness = nearness.masked_fill(~tokens, torch.finfo(nearness.dtype).min)
        weights = torch.softmax(nearness, dim=1)  # equation 9
        return (weights[:, :, None] * states).sum(dim=1)  # equation 10


def _start(cell: nn.LSTM | nn.GRU) -> None:
    """Start values as in Keras, which the paper uses (section 5.3); the paper gives none.

    Glorot for W, orthogonal for U, zero biases, those of forget gates one. The LSTM has one b_k a gate, as in the
    equations: torch's second one stays zero. The GRU keeps both, as its candidate state needs them.
    """
    units = cell.hidden_size
    of_words, of_states, bias, second_bias = cell.parameters()  # of all gates, one below the other
    for matrix in of_words.data.split(units):
        nn.init.xavier_uniform_(matrix)
    for matrix in of_states.data.split(units):
        nn.init.orthogonal_(matrix)
    nn.init.zeros_(bias)
    nn.init.zeros_(second_bias)
    if isinstance(cell, nn.LSTM):
        nn.init.ones_(bias.data[units : 2 * units])  # torch's order of gates: i, f, c, o
        second_bias.requires_grad_(False)
