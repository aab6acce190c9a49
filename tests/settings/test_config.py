"""Settings: presets, assignments, and what is refused."""

import re
import runpy
from pathlib import Path

import pytest

from dupq import system
from dupq.encoders.encoding import kinds
from dupq.errors import SettingError
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import EncoderSettings

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("preset", config.preset_names())
def test_every_preset_parses(preset: str) -> None:
    settings = config.load(preset)
    assert Settings.parse(config.to_dict(settings)) == settings


def test_of_settings_that_another_version_wrote_those_that_this_one_has_are_read() -> None:
    saved = config.to_dict(Settings())
    saved["clusters"]["scored_size"] = 500_000
    saved["encoder"]["dropout"], saved["gone"] = 0.5, {"gpu": "always"}
    assert config.known_in(saved) == Settings(encoder=EncoderSettings(dropout=0.5))
    with pytest.raises(SettingError, match="there is no such setting"):
        Settings.parse(saved)


def test_settings_of_the_papers_are_unknown_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "is_installed", lambda module: module != "dupq_papers")
    with pytest.raises(SettingError, match=r"^setting 'text\.dates' is 'date'; there is no such setting"):
        Settings.parse({"text": {"dates": "date"}})
    with pytest.raises(SettingError, match="'training' has no 'loss'"):
        config.load("dupq", ["training.loss=squared_error"])


def test_an_unknown_preset_or_section_is_named_with_those_there_are() -> None:
    with pytest.raises(SettingError, match="dupq-distilled"):
        config.load("no-such")
    with pytest.raises(SettingError, match="section 'nowhere' is unknown; there are text, "):
        config.load(assignments=["nowhere.k=1"])


def test_assignments_are_read_by_the_types_of_their_settings() -> None:
    settings = config.load("dupq", ["neighbours.sites=a.com,b.com", "training.learning_rate=3", "run.keep_work=true"])
    assert settings.neighbours.sites == ("a.com", "b.com")
    assert settings.training.learning_rate == 3.0
    assert settings.run.keep_work is True


def test_settings_are_frozen_and_a_changed_copy_is_checked() -> None:
    settings = config.load()
    with pytest.raises(ValueError, match="frozen"):
        settings.training.epochs = 3  # type: ignore[misc]
    assert settings.training.changed(epochs=3).epochs == 3
    with pytest.raises(SettingError, match=r"'TrainingSettings.epochs' is 0; at least 1"):
        settings.training.changed(epochs=0)


def test_settings_that_say_only_how_are_no_part_of_the_answer() -> None:
    how = ["encode.actors=3", "neighbours.block_rows=9", "training.checkpoint_seconds=0"]
    settings, others = config.load(), config.load(assignments=how)
    assert settings != others
    assert config.answer_settings(settings) == config.answer_settings(others)
    changed = config.load(assignments=["encode.batch_size=9"])
    assert config.answer_settings(settings) != config.answer_settings(changed)


@pytest.mark.parametrize("setting", ["word_vectors.file", "teacher.encoder", "calibration.prior"])
def test_the_address_of_a_file_is_no_part_of_the_answer(setting: str) -> None:
    here, there = (config.load(assignments=[f"{setting}={address}"]) for address in ("/here", "/there"))
    assert here != there
    assert config.answer_settings(here) == config.answer_settings(there)


def test_only_free_sections_of_an_encoders_settings_may_change() -> None:
    assert config.assign_free(Settings(), ["clusters.threshold=0.5"], ("clusters",)).clusters.threshold == 0.5
    with pytest.raises(SettingError, match=r"text.code=kept: fixed when the encoder was trained; free are clusters"):
        config.assign_free(Settings(), ["text.code=kept"], ("clusters",))


def test_every_setting_says_what_it_is() -> None:
    for section in Settings.model_fields.values():
        for name, field in type(section.default).model_fields.items():
            assert (field.description or "")[-1:] in (".", ","), name


def test_the_page_of_settings_is_that_of_the_models() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_settings.py"))["page"]()
    assert (ROOT / "docs" / "settings.md").read_text("utf-8") == made, "run make docs"
    headings = re.findall(r"^### encoder\.kind=(.+)$", made, re.MULTILINE)
    assert {kind for heading in headings for kind in heading.split(" or ")} == set(kinds())
