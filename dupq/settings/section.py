"""What all sections of settings share: they are frozen, know their ranges, and say what is wrong in one line."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from dupq.errors import SettingError

ONLY_HOW = "only how"  # marks a setting that says how a run is made and changes nothing of its answer
BY_CONTENT = "by content"  # marks the URI of what a run reads: it is its content that makes another run

_MOST = 1_000_000_000  # more than any archive has of anything that is counted
Count = Annotated[int, Field(ge=1, le=_MOST)]
CountOrZero = Annotated[int, Field(ge=0, le=_MOST)]
Length = Annotated[int, Field(ge=1, le=16_384)]  # of a vector
Components = Annotated[int, Field(ge=0, le=1_000)]  # principal ones
Words = Annotated[int, Field(ge=1, le=1_000)]  # in a row
Batch = Annotated[int, Field(ge=1, le=1_000_000)]
Passes = Annotated[int, Field(ge=1, le=10_000)]
PassesOrNone = Annotated[int, Field(ge=0, le=10_000)]
Seed = Annotated[int, Field(ge=0, le=(1 << 32) - 1)]
Share = Annotated[float, Field(ge=0, le=1)]
MoreThanZero = Annotated[float, Field(gt=0, le=1e9)]


def _split(value: object) -> object:
    return tuple(part for part in value.split(",") if part) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Widths = Annotated[tuple[Words, ...], BeforeValidator(_split), Field(min_length=1, max_length=100)]


class Section(BaseModel):
    """A section of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def read(cls, values: Mapping[str, object], section: str = "") -> Self:
        """The section with these values, which may be texts as on a command line.

        Raises SettingError that names the first wrong one; `section` is its name there.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingError(_said(error.errors()[0], [section] if section else [])) from None

    def changed(self, **values: object) -> Self:
        """A copy with other values, which are checked."""
        return type(self).read({**dict(self), **values}, type(self).__name__)


_RULES = {
    "int_parsing": "a whole number expected",
    "int_type": "a whole number expected",
    "int_from_float": "a whole number expected",
    "float_parsing": "a number expected",
    "float_type": "a number expected",
    "finite_number": "a finite number expected",
    "bool_parsing": "true or false expected",
    "bool_type": "true or false expected",
    "string_type": "text expected",
    "tuple_type": "a list expected",
    "too_short": "one or more expected",
    "too_long": "at most {max_length} expected",
    "literal_error": "allowed: {expected}",
    "greater_than": "more than {gt:,.15g} expected",
    "greater_than_equal": "at least {ge:,.15g} expected",
    "less_than": "less than {lt:,.15g} expected",
    "less_than_equal": "at most {le:,.15g} expected",
    "extra_forbidden": "there is no such setting",
}


def _said(found: ErrorDetails, sections: list[str]) -> str:
    """An error of pydantic in the words of this project: which setting, what it is, and what it may be."""
    path = ".".join([*sections, *(str(name) for name in found["loc"])])
    rule = _RULES.get(found["type"], found["msg"]).format(**found.get("ctx", {}))
    return f"setting '{path}' is {found['input']!r}; {rule}"
