"""The settings of an experiment's part: of its preset, changed by the table and the row, and made smaller if wanted."""

import dataclasses

from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import TextSettings
from dupq_papers.data.examples import ExampleSettings
from dupq_papers.experiments.rows import PRESET, Part
from dupq_papers.experiments.sources import Source
from dupq_papers.settings import PaperWordVectors

# The preset whose texts and word vectors a system reads that is no encoder
_READ_AS = {"wekos": "othman-lstm", "m-net": "othman-lstm", "simbow": "mappsent"}
_PLAIN = {  # for systems that read the stored tokens: with punctuation, as Bogdanova et al., or without, as Lucene
    "pairs": "bogdanova-sum",
    "ranking": "dupq",
    "candidates": "dupq",
}
_SEARCHED = "dupq"  # the preset that candidates are searched with, whatever the system that ranks them
_QUICK_EPOCHS = {"training": 4, "title_body": 3, "word_vectors": 2}
_QUICK_TEXTS = 2_500  # that word vectors are learned from
_FULL = ExampleSettings(training_pairs=100_000, measured_pairs=3_000, queries=1_000)
_QUICK = ExampleSettings(training_pairs=150, measured_pairs=150, queries=100)


def limits_for(is_quick: bool) -> ExampleSettings:
    """How much of the data is used by parts that ask for no less."""
    return _QUICK if is_quick else _FULL


def limits_of(part: Part) -> ExampleSettings:
    """How much of the data a part uses."""
    limits = limits_for(part.is_quick)
    most = min(part.pairs or limits.training_pairs, limits.training_pairs)
    return dataclasses.replace(limits, training_pairs=most)


def settings_of(part: Part, data: Source) -> Settings:
    """All settings of a part on a data set."""
    preset = _READ_AS.get(part.system, _PLAIN[part.task])
    if part.system.startswith(PRESET):
        preset = part.system.removeprefix(PRESET)
    settings = config.load(preset, [*part.text, *part.changes, *_read_as(data)])
    settings = config.in_language(settings, data.language)
    return _quickened(settings) if part.is_quick else settings


def searched_text(data: Source) -> TextSettings:
    """How a data set is read to draw candidates: one reading for all systems, so that they rank the same ones."""
    return config.load(_SEARCHED, _read_as(data)).text


def _read_as(data: Source) -> list[str]:
    """What a data set changes of the settings. The title is read once by every system."""
    changes = ["text.title_times=1", f"text.language={data.language}"]
    if not data.has_bodies:
        changes.append("text.fields=title")
    if data.language == "arabic":
        changes += ["text.arabic=normalised", "text.parts_of_speech=all"]
    return changes


def _quickened(settings: Settings) -> Settings:
    vectors, most = PaperWordVectors.parse(dict(settings.word_vectors)), _QUICK_EPOCHS
    return settings.changed(
        training=settings.training.changed(epochs=min(settings.training.epochs, most["training"])),
        title_body=settings.title_body.changed(epochs=min(settings.title_body.epochs, most["title_body"])),
        word_vectors=vectors.changed(epochs=min(vectors.epochs, most["word_vectors"]), sentences=_QUICK_TEXTS),
    )
