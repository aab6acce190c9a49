"""A packed encoder is the encoder, up to the rounding of its weights; the one that ships is small and whole."""

import numpy as np

from dupq.encoders.encoding import network_settings
from dupq.encoders.saved import BASE, Start, base_fingerprint, pack, unpack
from dupq.settings import config


def start(words: list[str]) -> Start:
    generator = np.random.default_rng(5)
    tensors = {
        "words.weight": generator.normal(size=(len(words) + 2, 7)).astype(np.float32),
        "log_weights.weight": generator.normal(size=(len(words) + 2, 1)).astype(np.float32),
        "power": np.float32(0.5),
        "convolution.bias": np.zeros(3, np.float32),
    }
    tensors["words.weight"][:2] = 0
    return Start(config.load("dupq"), words, tensors)


def test_what_was_packed_is_there_again_up_to_half_a_step() -> None:
    given = start(["bread", "größe", "naïv"])
    found = unpack(pack(given))
    assert (found.settings, found.words) == (given.settings, given.words)
    assert found.tensors.keys() == given.tensors.keys()
    for name, tensor in given.tensors.items():
        near = found.tensors[name]
        assert (near.shape, near.dtype) == (tensor.shape, np.float32)
        step = np.abs(tensor).max(axis=-1, keepdims=True) / 127 if name == "words.weight" else np.abs(tensor) * 2**-10
        assert (np.abs(near - tensor) <= step / 2 + 1e-9).all(), name
    assert pack(given) == pack(given)
    again = unpack(pack(found))
    assert all(np.allclose(again.tensors[name], found.tensors[name], rtol=1e-6) for name in found.tensors)


def test_the_encoder_that_ships_is_small_and_fits_the_default_preset() -> None:
    content = BASE.read_bytes()
    assert len(content) <= 5_000_000
    assert base_fingerprint() == base_fingerprint()
    found, wanted = unpack(content), config.load("dupq")
    network = network_settings(wanted.encoder).network(found.tensors["words.weight"])
    shapes = {
        name: tuple(value.shape) for name, value in network.state_dict().items() if name not in network.of_archive
    }
    assert {name: value.shape for name, value in found.tensors.items()} == shapes
    assert len(found.words) == len(set(found.words)) > 10_000
    assert all(np.isfinite(value).all() for value in found.tensors.values())
    assert (BASE.parent / "NOTICE.txt").exists()
