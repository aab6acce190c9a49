"""The presets of the papers: their numbers, and settings that their networks refuse."""

import re

import pytest

from dupq.encoders.encoding import counts_training_texts_only, network_settings
from dupq.errors import SettingError
from dupq.settings import config
from dupq.settings.sections import TextSettings
from dupq_papers.settings import PaperText


def test_bogdanovas_preset_has_the_papers_numbers() -> None:
    settings = config.load("bogdanova-sum")
    assert settings.word_vectors.dimensions == 200
    assert (settings.encoder.units, settings.encoder.window, settings.encoder.pooling) == (300, 3, "sum")
    assert settings.training.learning_rate == 0.005
    assert (settings.text.code, settings.text.tokens) == ("removed", "punctuation")
    training = settings.training
    assert (training.positives, training.negatives) == ("links", 1)
    assert (training.negatives_drawn, training.negative_pairs) == ("once", "random")
    highest = config.load("bogdanova-max")
    assert highest == settings.changed(encoder=settings.encoder.changed(pooling="max"))


def test_the_other_presets_have_their_papers_numbers() -> None:
    cnn, bow = config.load("dos-santos-cnn"), config.load("dos-santos-bow-cnn")
    assert (cnn.encoder.units, cnn.training.learning_rate) == (1000, 0.05)
    assert (bow.encoder.units, bow.training.learning_rate) == (400, 0.01)
    for settings in (cnn, bow):
        assert (settings.word_vectors.dimensions, settings.encoder.window) == (200, 3)
        assert (settings.training.loss, settings.training.gamma, settings.training.negatives) == (
            "logistic_ranking",
            10.0,
            20,
        )
        assert (settings.training.anchors, settings.training.negatives_drawn) == ("apart", "once")
        assert (settings.training.positives, settings.word_vectors.minimum_count) == ("links", 1)
    for name in ("lstm", "gru"):
        settings = config.load(f"othman-{name}")
        assert (settings.word_vectors.dimensions, settings.encoder.similarity) == (300, "manhattan")
        assert (settings.training.loss, settings.training.epochs) == ("mean_squared_error", 25)
        assert (settings.text.fields, settings.training.positives) == ("title", "links")


def test_what_only_the_papers_set_is_saved_with_an_encoder_and_usual_without() -> None:
    settings = config.load("othman-lstm")
    assert config.Settings.parse(config.to_dict(settings)) == settings
    assert isinstance(settings.text, PaperText)
    as_usual = config.load("othman-lstm", ["text.stop_words=kept", "text.dates=kept", "text.digits=kept"])
    assert type(as_usual.text) is TextSettings


def test_a_value_that_is_wrong_only_with_another_is_named_with_both() -> None:
    with pytest.raises(SettingError, match=r"parts_of_speech' is 'content'; .*text.language=french"):
        config.load("dupq", ["text.parts_of_speech=content", "text.language=french"])


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
        ("othman-lstm", "training.gamma=0", "training.gamma"),
        ("othman-lstm", "training.optimizer=guess", "adadelta"),
        ("dupq", "training.gradient_clipping=-1", "training.gradient_clipping"),
        ("dupq", "training.pairs=-1", "at least 0"),
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
