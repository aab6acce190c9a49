"""A teacher's embeddings, site by site, and how far a student is from them."""

from pathlib import Path

import numpy as np
import pytest
from encoder_settings import where_read

from dupq.encoders.encoding import build
from dupq.encoders.protocol import Encoder
from dupq.encoders.saved import weights
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.text.keys import ID_BITS
from dupq.training.checkpoints import Checkpoints
from dupq.training.loop import train_epoch
from dupq.training.optimisation import optimizer_for
from dupq.training.pairs import distillation_targets, targets_in_order


def keys_of(sizes: list[int]) -> np.ndarray:
    return np.concatenate([np.arange(size) | (site << ID_BITS) for site, size in enumerate(sizes)])


def test_targets_are_of_length_1_and_their_sites_have_nothing_in_common() -> None:
    keys, generator = keys_of([50, 1, 30]), np.random.default_rng(2)
    embeddings = (generator.normal(size=(81, 5)) + 3 * (keys >> ID_BITS)[:, None]).astype(np.float32)
    before = embeddings.copy()
    actual = distillation_targets(keys, embeddings)
    assert np.array_equal(embeddings, before)
    for site, size in ((0, 50), (2, 30)):
        of_site = keys >> ID_BITS == site
        expected = embeddings[of_site] - embeddings[of_site].sum(axis=0) / size
        expected /= np.linalg.norm(expected, axis=1)[:, None]
        assert actual.vectors[of_site] == pytest.approx(expected, abs=1e-5)
    assert not actual.vectors[keys >> ID_BITS == 1].any()


def test_batches_are_of_one_site_and_the_rest_is_mixed() -> None:
    keys = keys_of([230, 70, 260])
    targets = distillation_targets(keys, np.random.default_rng(2).normal(size=(560, 4)).astype(np.float32))
    for epoch in (1, 2):
        order = targets_in_order(targets, 1, epoch, 100).left
        assert len(order) == len(set(order.tolist()))
        sites = [set((order[start : start + 100] >> ID_BITS).tolist()) for start in range(0, len(order), 100)]
        assert [len(batch) for batch in sites[:4]] == [1, 1, 1, 1]
        assert sites[4] == {0, 1, 2}
        assert set(keys.tolist()) >= set(order.tolist())
        assert len(order) == 500  # a last batch of 60 waits


def student() -> tuple[Settings, Encoder]:
    chosen = config.load("dupq", ["training.learning_rate=0.02", "training.batch_size=8"])
    chosen = where_read(chosen, dropout=0.0)
    vectors = np.random.default_rng(1).normal(size=(30, 6)).astype(np.float32)
    return chosen, build(chosen.encoder, vectors, seed=1)


def go_on(folder: Path, epochs: int) -> tuple[Encoder, list[float]]:
    """Distil until there are `epochs`, from the newest checkpoint on."""
    chosen, network = student()
    sequences = {key: np.random.default_rng(key).integers(1, 30, 9).astype(np.int32) for key in range(40)}
    targets = distillation_targets(np.arange(40), np.random.default_rng(7).normal(size=(40, 9)).astype(np.float32))
    optimizer = optimizer_for(network, chosen.training)
    checkpoints = Checkpoints(str(folder))
    curve = checkpoints.resume(network, optimizer)
    while len(curve) < epochs:
        epoch = len(curve) + 1
        examples = targets_in_order(targets, 1, epoch, 8)
        mean = train_epoch(network, optimizer, sequences, examples, chosen.training).mean
        curve.append({"epoch": epoch, "loss": mean, "development_map": epoch / 9, "examples": 40})
        checkpoints.save(network, optimizer, curve)
    return network, [row["loss"] for row in curve]


def test_a_distillation_in_pieces_is_that_in_one(tmp_path: Path) -> None:
    whole, losses = go_on(tmp_path / "whole", 6)
    for epochs in (1, 4, 6):
        resumed, _ = go_on(tmp_path / "pieces", epochs)
    assert losses[-1] < losses[0] * 0.9
    assert weights(resumed) == weights(whole)
    for file in (tmp_path / "whole").iterdir():
        assert file.read_bytes() == (tmp_path / "pieces" / file.name).read_bytes()
