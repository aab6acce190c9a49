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
    generator = np.random.default_rng(questions + dimensions)
    torch.manual_seed(questions + dimensions)
    vectors = np.empty((questions, dimensions), np.float16)
    for start in range(0, questions, 1 << 16):
        piece = torch.randn(min(1 << 16, questions - start), dimensions, device=device)
        copies = (torch.rand(len(piece), device=device) < 0.2).nonzero()[:, 0]
        piece[copies] = piece[torch.randint(len(piece), (len(copies),), device=device)] + 0.45 * piece[copies]
        vectors[start : start + len(piece)] = torch.nn.functional.normalize(piece).half().cpu().numpy()
    return Embeddings(np.arange(questions), vectors, _bags(questions, generator) if has_bags else None)


def _bags(questions: int, generator: np.random.Generator) -> sparse.csr_array:
    ids = (50_000 ** generator.random((questions, 60))).astype(np.int32)
    rows = np.repeat(np.arange(questions), 60)
    bags = sparse.csr_array((np.ones(rows.size, np.float32), (rows, ids.ravel())), shape=(questions, 50_000))
    bags.sum_duplicates()
    lengths = np.sqrt(np.bincount(np.repeat(np.arange(questions), np.diff(bags.indptr)), bags.data**2))
    bags.data = (bags.data / np.repeat(lengths, np.diff(bags.indptr))).astype(np.float16).astype(np.float32)
    return bags
