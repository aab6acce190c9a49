"""What an epoch is measured by, on development questions."""

import numpy as np

from dupq.encoders.encoding import build
from dupq.encoders.protocol import Encoder
from dupq.evaluation.development import development_map
from dupq.links import KnownDuplicates, split_links
from dupq.settings import config
from dupq.settings.config import Settings

SEQUENCES = {key: np.random.default_rng([1, key // 2]).integers(2, 40, 6) for key in range(60)}  # pairs of copies
LINKS = np.arange(60).reshape(-1, 2)


def untrained() -> tuple[Encoder, KnownDuplicates, Settings]:
    settings = config.load("dupq", ["encoder.kind=cnn", "encoder.units=6"])
    known = KnownDuplicates(LINKS, split_links(LINKS, settings.training), np.zeros((0, 2), np.int64), {})
    table = np.random.default_rng(2).normal(size=(40, 6)).astype(np.float32)
    return build(settings.encoder, table, 1), known, settings


def test_an_epoch_is_measured_by_map() -> None:
    network, known, settings = untrained()
    assert development_map(network, SEQUENCES, known, settings) == 1.0  # copies
