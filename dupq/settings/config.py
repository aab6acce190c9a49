"""All settings of a job. Presets are TOML files in `presets/`, changed by `--set section.name=value`."""

import importlib.resources
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources.abc import Traversable

from pydantic import model_validator

from dupq.errors import SettingError
from dupq.settings.sections import (
    BY_CONTENT,
    ONLY_HOW,
    CalibrationSettings,
    ClusterSettings,
    EncoderSettings,
    EncodeSettings,
    EvaluationSettings,
    IngestSettings,
    NearDuplicateSettings,
    NeighbourSettings,
    RunSettings,
    Section,
    TeacherSettings,
    TextSettings,
    TitleBodySettings,
    TrainingSettings,
    WordVectorSettings,
)
from dupq.system import papers

DEFAULT_PRESET = "dupq"
# settings that encoders and runs may have been saved with, and that are constants or nothing now
_RETIRED = {
    "near_duplicates": (
        *("false_negative_weight", "seed", "bands", "rows", "chain_links", "bucket_limit", "keep_signatures"),
        *("same_numbers", "short_text"),
    ),
    "word_vectors": ("workers", "answers", "counted_words", "absent", "hashed"),
    "title_body": ("span", "learning_rate", "temperature", "development_share"),
    "teacher": ("loss", "vector_weight", "batch_size", "temperature", "alike_batches"),
    "training": (
        *("negative_margin", "gpu", "set_pairs", "mined_epochs", "development_share", "test_share", "negative_pool"),
        "best_epoch",
    ),
    "encode": ("gpus",),
    "neighbours": (
        "pairs_per_question",
        *("method", "ivf_lists", "ivf_probes", "ivf_words", "ivf_sample", "ivf_recall"),
    ),
    "calibration": ("unknown_words", "bodies_found"),
    "clusters": ("scored_size",),
    "evaluation": ("bm25_limit", "k"),
    "ingest": ("rejects_allowed", "maximum_body_bytes", "maximum_unpack_ratio", "maximum_unpacked_bytes"),
}
# What the papers have settings of (papers/dupq_papers/settings.py), as it always is without them
_OF_PAPERS: dict[str, dict[str, object]] = {
    "text": {
        "tokens": "words",
        "stop_words": "kept",
        "parts_of_speech": "all",
        "links": "token",
        "dates": "kept",
        "digits": "kept",
        "arabic": "written",
    },
    "training": {
        "loss": "softmax",
        "gamma": 10.0,
        "optimizer": "adam",
        "gradient_clipping": 0.0,
        "pairs": 0,
        "negatives_drawn": "each-epoch",
        "negative_pairs": "linked",
        "anchors": "together",
    },
}


class Settings(Section):
    """All settings of one job, a section each."""

    text: TextSettings = TextSettings()
    near_duplicates: NearDuplicateSettings = NearDuplicateSettings()
    word_vectors: WordVectorSettings = WordVectorSettings()
    encoder: EncoderSettings = EncoderSettings()
    title_body: TitleBodySettings = TitleBodySettings()
    teacher: TeacherSettings = TeacherSettings()
    training: TrainingSettings = TrainingSettings()
    encode: EncodeSettings = EncodeSettings()
    neighbours: NeighbourSettings = NeighbourSettings()
    calibration: CalibrationSettings = CalibrationSettings()
    clusters: ClusterSettings = ClusterSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    run: RunSettings = RunSettings()
    ingest: IngestSettings = IngestSettings()

    @model_validator(mode="before")
    @classmethod
    def _with_those_of_papers(cls, values: Mapping[str, object]) -> dict[str, object]:
        return {name: _read_as_papers(name, entries) for name, entries in values.items()}


def _read_as_papers(section: str, entries: object) -> object:
    """Return a section that sets something of the papers as one of theirs, and another one as it is."""
    usual = _OF_PAPERS.get(section, {})
    if not isinstance(entries, Mapping):
        return entries
    unlike = [name for name, value in usual.items() if entries.get(name, value) != value]
    if entries.get("word_form") == "lemmas":
        unlike.append("word_form")
    if not unlike:
        return {name: value for name, value in entries.items() if name not in usual}
    for module in papers("settings"):
        return module.SECTIONS[section].read(entries, section)
    raise SettingError(
        f"setting '{section}.{unlike[0]}' is the papers', and needs the package dupq_papers, which is not installed "
        "(papers/README.md)"
    )


def preset_names() -> list[str]:
    """The presets that ship with dupq, and those of the papers where they are installed."""
    return sorted(_presets())


def _presets() -> dict[str, Traversable]:
    folders = [
        importlib.resources.files("dupq.settings") / "presets",
        *map(importlib.resources.files, papers("presets")),
    ]
    files = (file for folder in folders for file in folder.iterdir())
    return {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}


def load(preset: str = DEFAULT_PRESET, assignments: Iterable[str] = ()) -> Settings:
    """The settings of a preset, changed by assignments like `near_duplicates.threshold=0.7`.

    Raises SettingError naming the preset or the setting that is wrong.
    """
    presets = _presets()
    if preset not in presets:
        raise SettingError(f"--preset {preset}: no such preset; there are {', '.join(sorted(presets))}")
    return assign(from_dict(tomllib.loads(presets[preset].read_text("utf-8"))), assignments)


def assign(settings: Settings, assignments: Iterable[str]) -> Settings:
    """`settings` changed by assignments like `near_duplicates.threshold=0.7`, and checked.

    Another kind of encoder starts from its own defaults: what was set for the old kind is dropped.
    """
    sections = to_dict(settings)
    changes = [_parsed(assignment) for assignment in assignments]
    if any((section, name) == ("encoder", "kind") for section, name, _ in changes):
        sections["encoder"] = {"maximum_tokens": settings.encoder.maximum_tokens}
    for section, name, value in changes:
        sections[section][name] = value
    return Settings.read(sections)


def assign_free(settings: Settings, assignments: Iterable[str], free: tuple[str, ...], others: str) -> Settings:
    """`assign` where only the sections named in `free` may change; `others` says why no other may."""
    assignments = tuple(assignments)
    for assignment in assignments:
        section = assignment.partition(".")[0]
        if section in Settings.model_fields and section not in free:
            raise SettingError(f"--set {assignment}: {others}; free are {', '.join(free)}")
    return assign(settings, assignments)


def assign_to_trained(trained: Settings, assignments: Iterable[str], free: tuple[str, ...]) -> Settings:
    """`assign_free` to the settings of an encoder."""
    return assign_free(trained, assignments, free, "fixed when the encoder was trained")


def to_dict(settings: Settings) -> dict[str, dict[str, object]]:
    """Plain dictionaries, for JSON."""
    return {name: section.model_dump() for name, section in settings}


def from_dict(values: Mapping[str, Mapping[str, object]]) -> Settings:
    """The settings that `to_dict` or a preset file holds; what is not named keeps its default."""
    kept = {
        section: {name: value for name, value in entries.items() if name not in _RETIRED.get(section, ())}
        for section, entries in values.items()
    }
    return Settings.read(kept)


def in_language(settings: Settings, language: str) -> Settings:
    """`settings` for texts in a language. The encoder that ships with dupq is English: others learn from nothing."""
    vectors = settings.word_vectors
    settings = settings.changed(text=settings.text.changed(language=language))
    if language == "english" or not vectors.goes_on or vectors.start != "base":
        return settings
    vectors, title_body = vectors.changed(algorithm="random"), settings.title_body.changed(epochs=12)
    return settings.changed(word_vectors=vectors, title_body=title_body)


def answer_settings(settings: Settings) -> dict[str, dict[str, object]]:
    """As `to_dict`, without the settings that change nothing of the answer.

    Files are as if none were given: their contents are among a run's inputs, and where they are changes nothing.
    """
    kept = {name: _answer(section) for name, section in settings}
    return {name: entries for name, entries in kept.items() if entries}


def _answer(section: Section) -> dict[str, object]:
    fields = type(section).model_fields
    values = section.model_dump(exclude={name for name in fields if is_only_how(section, name)})
    return values | {name: field.default for name, field in fields.items() if BY_CONTENT in field.metadata}


def is_only_how(section: Section | type[Section], name: str) -> bool:
    """Whether a setting says only how a run is made."""
    return ONLY_HOW in section.model_fields[name].metadata


def _parsed(assignment: str) -> tuple[str, str, str]:
    path, separator, value = assignment.partition("=")
    section, dot, name = path.partition(".")
    if not separator or not dot:
        raise SettingError(f"--set {assignment}: write it as section.name=value")
    if section not in Settings.model_fields:
        raise SettingError(f"settings section '{section}' is unknown; there are {', '.join(Settings.model_fields)}")
    if name in _RETIRED.get(section, ()):
        raise SettingError(f"--set {assignment}: dupq has no such setting any more; leave it out")
    there = Settings.model_fields[section].default
    known = type(there).model_fields.keys() | _OF_PAPERS.get(section, {}).keys()
    if not isinstance(there, EncoderSettings) and name not in known:
        raise SettingError(
            f"--set {assignment}: '{section}' has no '{name}'; it has {', '.join(type(there).model_fields)}"
        )
    return section, name, value
