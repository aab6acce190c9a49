"""The presets of the papers: their numbers, and settings that their networks refuse."""

import re

import pytest

from dupq.encoders.encoding import counts_training_texts_only, network_settings
from dupq.errors import SettingError
from dupq.settings import config


def test_othmans_presets_have_the_papers_numbers() -> None:
    for name in ("alstm", "cnn-widths", "cnn"):
        settings = config.load(f"othman-{name}")
        assert (settings.word_vectors.dimensions, settings.encoder.similarity) == (300, "manhattan")
        assert (settings.training.loss, settings.training.epochs) == ("mean_squared_error", 25)
        assert (settings.text.fields, settings.training.positives) == ("title", "links")
    assert (settings.encoder.filters, settings.encoder.dropout, settings.training.batch_size) == (32, 0.5, 128)
    assert (settings.training.optimizer, settings.training.learning_rate) == ("adam", 0.01)
    assert (settings.encoder.layers, settings.encoder.window, settings.encoder.pool) == (3, 3, 2)
    lstm = config.load("othman-alstm")
    assert lstm.encoder.directions == "both"
    assert (lstm.encoder.units, lstm.training.gradient_clipping, lstm.training.batch_size) == (50, 1.25, 64)
    assert (lstm.training.optimizer, lstm.encoder.pooling) == ("adadelta", "attention")


@pytest.mark.parametrize(
    ("preset", "assignment", "named"),
    [
        ("othman-cnn", "encoder.pool=0", "encoder.pool"),
        ("othman-cnn", "encoder.kind=width_cnn,encoder.widths=0", "encoder.widths"),
        ("othman-cnn", "encoder.kind=width_cnn,encoder.widths=a", "whole number"),
        ("mappsent", "encoder.taken_from=test", "'archive' or 'training'"),
        ("arora-sif", "encoder.smoothing=0", "more than 0"),
        ("mappsent", "encoder.removed_components=-1", "at least 0"),
    ],
)
def test_a_wrong_setting_of_a_network_is_named(preset: str, assignment: str, named: str) -> None:
    with pytest.raises(SettingError, match=re.escape(named)):
        network_settings(config.load(preset, assignment.split(",")).encoder)


def test_an_encoder_of_counts_can_leave_out_texts_that_are_kept_for_later() -> None:
    for name, is_alone in (("arora-sif", True), ("mappsent", True), ("dupq", False), ("bogdanova-sum", False)):
        assert counts_training_texts_only(config.load(name)) == is_alone
    assert not counts_training_texts_only(config.load("arora-sif", ["encoder.taken_from=archive"]))
