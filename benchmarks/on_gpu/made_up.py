"""What the parts compute with: networks of the presets' sizes that are not trained, and questions that are numbers."""

from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse

from dupq.encoders.encoding import build, network_settings
from dupq.encoders.protocol import Encoder
from dupq.neighbours.embeddings import Embeddings
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.questions import FIRST_WORD
from on_gpu.parts import Scale


class Sample(NamedTuple):
    """A network, its settings, and the ids of questions."""

    network: Encoder
    settings: Settings
    texts: list[np.ndarray]


def sample(scale: Scale, preset: str, questions: int, changes: tuple[str, ...] = ()) -> Sample:
    """Questions of 80 words on average, whose words are as frequent as in a language. Nothing is dropped out."""
    settings = config.load(preset, changes)
    network = network_settings(settings.encoder)
    for name, value in (("dropout", 0.0), *([("units", 8)] if scale.is_rehearsal else [])):
        network = network.changed(**{name: value}) if name in type(network).model_fields else network
    settings = settings.changed(encoder=network.to_section())
    generator = np.random.default_rng(1)
    words, dimensions = scale.size(200_000, 300), scale.size(settings.word_vectors.dimensions, 16)
    vectors = generator.normal(0, 0.1, (FIRST_WORD + words, dimensions)).astype(np.float32)
    lengths = np.minimum(1 + generator.geometric(1 / scale.size(80, 8), questions), 512)
    ids = FIRST_WORD + (words ** generator.random(int(lengths.sum()))).astype(np.int32) % words
    return Sample(build(settings.encoder, vectors, seed=1), settings, np.split(ids, np.cumsum(lengths)[:-1]))


def archive(questions: int, dimensions: int, has_bags: bool = False, device: torch.device | None = None) -> Embeddings:
    """Unit vectors, a fifth of them near another one (cosine about 0.9); bags of 60 words of 50,000."""
    torch.manual_seed(questions + dimensions)
    vectors = np.empty((questions, dimensions), np.float16)
    for start in range(0, questions, 1 << 16):
        piece = torch.randn(min(1 << 16, questions - start), dimensions, device=device)
        copies = (torch.rand(len(piece), device=device) < 0.2).nonzero()[:, 0]
        piece[copies] = piece[torch.randint(len(piece), (len(copies),), device=device)] + 0.45 * piece[copies]
        vectors[start : start + len(piece)] = torch.nn.functional.normalize(piece).half().cpu().numpy()
    return Embeddings(np.arange(questions), vectors, _bags(questions, device) if has_bags else None)


def _bags(questions: int, device: torch.device | None) -> sparse.csr_array:
    pieces = []
    for start in range(0, questions, 1 << 17):
        count = min(1 << 17, questions - start)
        ids = (50_000 ** torch.rand(count, 60, device=device)).long() % 50_000
        words, counts = (torch.arange(count, device=device)[:, None] * 50_000 + ids).unique(return_counts=True)
        rows, weights = words // 50_000, counts.float()
        squares = weights.new_zeros(count).index_add_(0, rows, weights.square())
        weights = (weights / squares.sqrt()[rows]).half().float()
        starts = torch.searchsorted(rows, torch.arange(count + 1, device=device))
        columns = (column.cpu().numpy() for column in (weights, (words % 50_000).int(), starts.int()))
        pieces.append(sparse.csr_array(tuple(columns), shape=(count, 50_000)))
    return sparse.vstack(pieces, format="csr")
