"""Writes docs/settings.md from the models of dupq/settings/ and of the networks: `make docs`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic.fields import FieldInfo

from dupq.encoders.encoding import kinds
from dupq.settings.config import Settings, is_only_how
from dupq.settings.sections import EncoderSettings, Section

PAGE = Path(__file__).with_name("settings.md")
_OPENING = """# Settings

Made by `make docs` from the models in `dupq/settings/` and of the networks; a test holds it to them. A
setting is changed by `--set section.name=value`, a list by commas between its values. A preset
(`dupq/settings/presets/`) sets some; the others have the default. `ingest` reads its own section, `train` those
from `text` to `encode`. `dedup` is free in `near_duplicates`, `encode`, `neighbours`, `calibration`, `reranker`,
`clusters` and `run`; `evaluate` in `encode` and `evaluation`, and without an encoder in `text`, `training` and
`evaluation`. All else stays as the encoder was trained.
Settings marked † say only how a run is made, not what it finds: with others of these the same run is finished.
More of `text`, `word_vectors` and `training` that only the papers' presets set is in `papers/dupq_papers/settings.py`.
"""


def page() -> str:
    """The whole page."""
    parts = [_OPENING]
    for name, field in Settings.model_fields.items():
        section = type(field.default)
        parts.append(f"\n## {name}\n\n{_first_line(section)}\n\n{_table(section)}")
        if section is EncoderSettings:
            parts += [f"\n### encoder.kind={names}\n\n{_table(kind)}" for kind, names in _networks() if _own(kind)]
    return "".join(parts)


def _networks() -> Iterator[tuple[type[Section], str]]:
    for kind in dict.fromkeys(kinds().values()):
        yield kind, " or ".join(get_args(kind.model_fields["kind"].annotation))


def _own(section: type[Section]) -> list[str]:
    shared = EncoderSettings.model_fields if issubclass(section, EncoderSettings) else {}
    return [name for name in section.model_fields if section is EncoderSettings or name not in shared]


def _first_line(section: type[Section]) -> str:
    return (section.__doc__ or "").partition("\n")[0]


def _table(section: type[Section]) -> str:
    lines = ["| setting | default | values | |", "|---|---|---|---|"]
    for name in _own(section):
        field = section.model_fields[name]
        mark = " †" if is_only_how(section, name) else ""
        lines.append(
            f"| `{name}`{mark} | {_shown(field.default)} | {_values(section, name, field)} | {field.description} |"
        )
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value) or "none"


def _values(section: type[Section], name: str, field: FieldInfo) -> str:
    if section is EncoderSettings and name == "kind":
        return ", ".join(f"`{kind}`" for kind in kinds())
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    if get_origin(field.annotation) is tuple:
        return "a list"
    named = {int: "whole number", float: "number", bool: "true, false", str: "text"}[field.annotation]
    return ", ".join([named, *(_bound(rule) for rule in field.metadata if _bound(rule))])


def _bound(rule: object) -> str:
    match rule:
        case Ge(ge=bound):
            return f"≥ {bound}"
        case Gt(gt=bound):
            return f"> {bound}"
        case Le(le=bound):
            return f"≤ {bound:,}"
        case Lt(lt=bound):
            return f"< {bound}"
        case MinLen(min_length=bound):
            return f"{bound} or more"
    return "odd" if "_odd" in repr(rule) else ""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
