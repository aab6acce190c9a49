"""What an epoch is measured by, on development questions."""

import numpy as np
import pytest

from dupq.encoders.encoding import build
from dupq.encoders.protocol import Encoder
from dupq.links.split import Known, split_links
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.training.steps import development
from dupq.training.steps.development import Development

SEQUENCES = {key: np.random.default_rng([1, key // 2]).integers(2, 40, 6) for key in range(60)}  # pairs of copies
LINKS = np.arange(60).reshape(-1, 2)


def untrained(best_epoch: str) -> tuple[Encoder, Known, Settings]:
    settings = config.load("bogdanova-sum", ["encoder.units=6", f"training.best_epoch={best_epoch}"])
    known = Known(LINKS, split_links(LINKS, settings.training), np.zeros((0, 2), np.int64), {})
    table = np.random.default_rng(2).normal(size=(40, 6)).astype(np.float32)
    return build(settings.encoder, table, 1), known, settings


@pytest.mark.parametrize("best_epoch", ["map", "accuracy"])
def test_an_epoch_has_the_measures_that_its_settings_name(best_epoch: str) -> None:
    network, known, settings = untrained(best_epoch)
    by = Development(known, SEQUENCES, None, settings)
    found = by.measure(network)
    assert tuple(found) == by.names
    assert found["development_map"] == 1.0  # copies
    assert found.get("development_accuracy", 1.0) == 1.0


def test_a_network_is_tuned_by_the_map_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    network, known, settings = untrained("accuracy")
    expected = Development(known, SEQUENCES, None, settings).measure(network)["development_map"]
    monkeypatch.setattr(development, "scored_pairs", None)
    assert development.development_map(network, SEQUENCES, known, settings) == expected
