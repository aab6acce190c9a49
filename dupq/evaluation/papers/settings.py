"""The settings of an experiment's part: of its preset, changed by the table and the row, and made smaller if wanted."""

from dupq.evaluation.papers.data_sets import DataSet
from dupq.evaluation.papers.protocol import Limits
from dupq.evaluation.papers.rows import PRESET, Part
from dupq.settings import config
from dupq.settings.config import Settings

# The preset whose texts and word vectors a system reads that is no encoder
_READ_AS = {"wekos": "othman-lstm", "m-net": "othman-lstm", "simbow": "mappsent"}
_AS_STORED = "bogdanova-sum"  # for systems that read the stored tokens
_QUICK_EPOCHS = {"title_body": 3, "word_vectors": 2}
_QUICK_TRAINING_EPOCHS = 4
FULL = Limits(training=0, development=500, test=3_000, queries=1_000)
QUICK = Limits(training=150, development=100, test=200, queries=100)


def limits_of(part: Part) -> Limits:
    """How much of the data a part uses."""
    limits = QUICK if part.is_quick else FULL
    wanted = [most for most in (part.pairs, limits.training) if most]
    return Limits(min(wanted, default=0), limits.development, limits.test, limits.queries)


def settings_of(part: Part, data: DataSet) -> Settings:
    """All settings of a part on a data set. The title is read once, as by every other system."""
    preset = part.system.removeprefix(PRESET) if part.system.startswith(PRESET) else _READ_AS.get(part.system, _AS_STORED)
    changes = [*part.text, *part.changes, "text.title_times=1"]
    if not data.has_bodies:
        changes.append("text.fields=title")
    if data.language != "english":
        changes += [f"text.language={data.language}", "text.parts_of_speech=all"]
    if data.language == "arabic":
        changes.append("text.arabic=normalised")
    settings = config.load(preset, changes)
    return _quickened(settings) if part.is_quick else settings


def _quickened(settings: Settings) -> Settings:
    return settings.changed(
        training=settings.training.changed(epochs=min(settings.training.epochs, _QUICK_TRAINING_EPOCHS)),
        title_body=settings.title_body.changed(epochs=min(settings.title_body.epochs, _QUICK_EPOCHS["title_body"])),
        word_vectors=settings.word_vectors.changed(
            epochs=min(settings.word_vectors.epochs, _QUICK_EPOCHS["word_vectors"])
        ),
    )
