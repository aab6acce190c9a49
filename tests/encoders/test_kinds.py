"""The settings of each kind of network, and what is refused."""

import re
from pathlib import Path

import numpy as np
import pytest

from dupq.encoders.encoding import build, kinds, network_settings
from dupq.errors import SettingError
from dupq.pipelines.train import FromDumpJob
from dupq.settings import config
from dupq.settings.sections import EncoderSettings


def test_each_preset_names_only_what_its_network_reads() -> None:
    seen = {network_settings(config.load(name).encoder).kind for name in config.preset_names()}
    assert seen == set(kinds())
    assert {"cnn", "lstm", "word_bag"} <= seen


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind != "sentence_transformers"])
def test_each_kind_builds_its_network_from_its_defaults(kind: str) -> None:
    network = build(EncoderSettings(kind=kind), np.ones((5, 4), np.float32), seed=1)
    assert network.words.weight.shape == (5, 4)
    assert network.trainable == (kind not in ("sif", "mappsent"))


@pytest.mark.parametrize(
    ("preset", "assignment", "named"),
    [
        ("bogdanova-sum", "encoder.window=4", "encoder.window' is '4'; an odd number expected"),
        ("bogdanova-sum", "encoder.similarity=manhattan", "encoder.kind=cnn does not read it; it reads kind, max"),
        ("dupq", "encoder.units=5", "encoder.kind=word_bag does not read it"),
        ("dupq", "encoder.dropout=1", "encoder.dropout' is '1'; less than 1"),
    ],
)
def test_a_wrong_setting_of_a_network_is_named(preset: str, assignment: str, named: str) -> None:
    with pytest.raises(SettingError, match=re.escape(named)):
        network_settings(config.load(preset, assignment.split(",")).encoder)


def test_a_setting_that_its_network_does_not_read_stops_a_training_before_any_work(tmp_path: Path) -> None:
    dump = tmp_path / "bread.example.com" / "Posts.xml"
    dump.parent.mkdir()
    dump.write_text("<posts></posts>")
    job = FromDumpJob((str(dump),), str(tmp_path / "out"), assignments=("encoder.units=5",))
    with pytest.raises(SettingError, match="word_bag does not read it"):
        job.check()
    assert not (tmp_path / "out").exists()


def test_another_kind_starts_from_its_own_defaults_in_whatever_order_it_is_assigned() -> None:
    there = config.load("dupq", ["encoder.maximum_tokens=9"])
    for assignments in (["encoder.kind=lstm", "encoder.units=5"], ["encoder.units=5", "encoder.kind=lstm"]):
        actual = network_settings(config.assign(there, assignments).encoder)
        assert (actual.kind, actual.model_dump()["units"], actual.maximum_tokens) == ("lstm", 5, 9)
