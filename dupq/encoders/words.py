"""What networks have in common: the table of word vectors, windows of them, and where the tokens are."""

import numpy as np
import torch
from torch import nn

from dupq.encoders.flat import WordProducts, word_products
from dupq.text.token_ids import TokenIds
from dupq.text.vocabulary import PADDING


def word_table(vectors: np.ndarray, is_updated: bool) -> nn.Embedding:
    """The table of word vectors (float32, one row an id), learned further or left as it is.

    Its gradient is sparse: a step touches the rows of its own words only.
    """
    return nn.Embedding.from_pretrained(torch.from_numpy(vectors.copy()), freeze=not is_updated, sparse=is_updated)


def inside(ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Which places of (B, L) hold tokens, not padding."""
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]


def windows(words: nn.Embedding, ids: torch.Tensor, window: int) -> torch.Tensor:
    """z_n (B, L, k * d): the `window` = k word vectors around each word of `ids` (B, L), k odd.

    Bogdanova et al. 2015, section 4.3, and dos Santos et al. 2015, section 2.3. Beyond the ends of a text
    stands the vector of padding.
    """
    reach = (window - 1) // 2
    vectors = words(nn.functional.pad(ids, (reach, reach), value=PADDING))
    return vectors.unfold(1, window, 1).transpose(2, 3).flatten(2)


def window_products(words: nn.Embedding, convolution: nn.Linear, window: int, texts: TokenIds) -> WordProducts:
    """What the W1 z_n of `texts` are sums of, with the same z_n as `windows`; without the bias."""
    matrix = convolution.weight.view(-1, window, words.embedding_dim).permute(1, 2, 0)
    return word_products(words, matrix, -((window - 1) // 2), PADDING, texts)
