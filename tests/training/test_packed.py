"""The encoder that ships is small and whole."""

import numpy as np

from dupq.encoders.encoding import network_settings
from dupq.settings import config
from dupq.training.start import BASE, unpack


def test_the_encoder_that_ships_is_small_and_fits_the_default_preset() -> None:
    content = BASE.read_bytes()
    assert len(content) <= 5_000_000
    actual, expected = unpack(content), config.load("dupq")
    network = network_settings(expected.encoder).network(actual.tensors["words.weight"])
    shapes = {
        name: tuple(value.shape) for name, value in network.state_dict().items() if name not in network.archive_weights
    }
    assert {name: value.shape for name, value in actual.tensors.items()} == shapes
    assert len(actual.words) == len(set(actual.words)) > 10_000
    assert all(np.isfinite(value).all() for value in actual.tensors.values())
    assert (BASE.parent / "NOTICE.txt").exists()
