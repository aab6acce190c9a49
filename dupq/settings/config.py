"""All settings of a job. Presets are TOML files in `presets/`, changed by `--set section.name=value`."""

import importlib.resources
import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources.abc import Traversable

from pydantic import model_validator

from dupq.errors import SettingError
from dupq.settings import sections
from dupq.settings.sections import BY_CONTENT, ONLY_HOW, Section
from dupq.system import papers, without_papers

DEFAULT_PRESET = "dupq"


class Settings(Section):
    """All settings of a job, by section."""

    text: sections.TextSettings = sections.TextSettings()
    near_duplicates: sections.NearDuplicateSettings = sections.NearDuplicateSettings()
    word_vectors: sections.WordVectorSettings = sections.WordVectorSettings()
    encoder: sections.EncoderSettings = sections.EncoderSettings()
    title_body: sections.TitleBodySettings = sections.TitleBodySettings()
    teacher: sections.TeacherSettings = sections.TeacherSettings()
    training: sections.TrainingSettings = sections.TrainingSettings()
    encode: sections.EncodeSettings = sections.EncodeSettings()
    neighbours: sections.NeighbourSettings = sections.NeighbourSettings()
    calibration: sections.CalibrationSettings = sections.CalibrationSettings()
    reranker: sections.RerankerSettings = sections.RerankerSettings()
    judge: sections.JudgeSettings = sections.JudgeSettings()
    clusters: sections.ClusterSettings = sections.ClusterSettings()
    run: sections.RunSettings = sections.RunSettings()
    ingest: sections.IngestSettings = sections.IngestSettings()

    @model_validator(mode="before")
    @classmethod
    def _read_papers_settings(cls, values: Mapping[str, object]) -> Mapping[str, object]:
        for module in papers("settings"):
            return {name: module.read(name, entries) for name, entries in values.items()}
        return values


def preset_names() -> list[str]:
    """Return the names of dupq's presets, and of the papers' if dupq_papers is installed."""
    return sorted(_presets())


def _presets() -> dict[str, Traversable]:
    own = importlib.resources.files("dupq.settings") / "presets"
    folders = [own, *map(importlib.resources.files, papers("presets"))]
    files = (file for folder in folders for file in folder.iterdir())
    return {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}


def load(preset: str = DEFAULT_PRESET, assignments: Iterable[str] = ()) -> Settings:
    """Return the settings of a preset, changed by assignments like `near_duplicates.threshold=0.7`.

    Raises SettingError that names the wrong preset or setting.
    """
    presets = _presets()
    if preset not in presets:
        raise SettingError(
            f"--preset {preset}: no such preset; there are {', '.join(sorted(presets))}{without_papers()}"
        )
    return assign(Settings.parse(tomllib.loads(presets[preset].read_text("utf-8"))), assignments)


def assign(settings: Settings, assignments: Iterable[str]) -> Settings:
    """Return `settings` changed by assignments like `near_duplicates.threshold=0.7`. Raises SettingError.

    Another kind of encoder starts from its own defaults: what was set for the old kind is dropped.
    """
    sections = to_dict(settings)
    changes = [_parse(assignment) for assignment in assignments]
    kinds = [value for section, name, value in changes if (section, name) == ("encoder", "kind")]
    if kinds and kinds[-1] != settings.encoder.kind:
        sections["encoder"] = {"maximum_tokens": settings.encoder.maximum_tokens}
    for section, name, value in changes:
        sections[section][name] = value
    return Settings.parse(sections)


def assign_free(
    settings: Settings,
    assignments: Iterable[str],
    free: tuple[str, ...],
    others: str = "fixed when the encoder was trained",
) -> Settings:
    """Return `settings` changed in the sections `free`. Raises SettingError for another one; `others` says why."""
    assignments = tuple(assignments)
    for assignment in assignments:
        section = assignment.partition(".")[0]
        if section in Settings.model_fields and section not in free:
            raise SettingError(f"--set {assignment}: {others}; free are {', '.join(free)}")
    return assign(settings, assignments)


def to_dict(settings: Settings) -> dict[str, dict[str, object]]:
    """Return settings as plain dictionaries, for JSON; `Settings.parse` reads them."""
    return {name: section.model_dump() for name, section in settings}


def known_in(values: Mapping[str, Mapping[str, object]]) -> Settings:
    """Return the settings that this version of dupq has, from dictionaries that another version may have written."""
    known = to_dict(Settings())
    kept = {section: entries for section, entries in values.items() if section in known}
    for section in kept.keys() - {"encoder"}:  # whose names are those of its kind
        kept[section] = {name: value for name, value in kept[section].items() if name in known[section]}
    return Settings.parse(kept)


def in_language(settings: Settings, language: str, assignments: Iterable[str] = ()) -> Settings:
    """Return `settings`, with `assignments` in them, for a language.

    Other languages than English do not start from dupq's encoder.
    """
    vectors = settings.word_vectors
    settings = settings.changed(text=settings.text.changed(language=language))
    if language == "english" or not vectors.goes_on or vectors.start != "base":
        return settings
    settings = settings.changed(word_vectors=vectors.changed(algorithm="random"))
    is_chosen = any(text.startswith("title_body.epochs=") for text in assignments)
    if is_chosen or settings.title_body.epochs != load().title_body.epochs:  # by a preset
        return settings
    return settings.changed(title_body=settings.title_body.changed(epochs=12))


def answer_settings(settings: Settings) -> dict[str, dict[str, object]]:
    """Return settings as `to_dict` does, without those that do not change the answer.

    Settings that name files have their defaults: the files' contents are among a run's inputs, and their paths do not
    matter.
    """
    kept = {}
    for name, section in settings:
        fields = type(section).model_fields
        values = section.model_dump(exclude={field for field in fields if is_only_how(section, field)})
        values |= {field: info.default for field, info in fields.items() if BY_CONTENT in info.metadata}
        if values:
            kept[name] = values
    return kept


def is_only_how(section: Section | type[Section], name: str) -> bool:
    """Return whether a setting does not change the answer, only how it is computed."""
    return ONLY_HOW in section.model_fields[name].metadata


def _parse(assignment: str) -> tuple[str, str, str]:
    path, separator, value = assignment.partition("=")
    section, dot, name = path.partition(".")
    if not separator or not dot:
        raise SettingError(f"--set {assignment}: write it as section.name=value")
    if section not in Settings.model_fields:
        raise SettingError(f"settings section '{section}' is unknown; there are {', '.join(Settings.model_fields)}")
    fields = type(Settings.model_fields[section].default).model_fields
    allowed = set(fields).union(*(module.names_of(section) for module in papers("settings")))
    if section != "encoder" and name not in allowed:
        raise SettingError(
            f"--set {assignment}: '{section}' has no '{name}'; it has {', '.join(fields)}{without_papers()}"
        )
    return section, name, value
