"""Which columns of a table are a question's title, text, id, tags and date: as options name them, or by their names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dupq.errors import DupqError
from dupq.text.markup import Markup

Table = Literal["posts", "links", "table"]  # "table": of questions from elsewhere

_OPTIONS = {"Title": "title", "Body": "text", "Id": "id", "Tags": "tags", "CreationDate": "date"}
_OBVIOUS = {  # names in lower case; of an id, tags and a date the first counts
    "Title": ("title", "question", "subject", "headline"),
    "Body": ("text", "body", "body_html", "answer", "answer_text", "description", "content"),
    "Id": ("id", "question_id", "number", "key"),
    "Tags": ("tags", "labels"),
    "CreationDate": ("creation_date", "created_at", "createdat", "date"),
}
_DUMP: Mapping[str, tuple[str, str]] = {  # the columns that a dump's own table must and may have
    "posts": (
        "Id PostTypeId",
        "Title Body Tags CreationDate Score ViewCount AnswerCount AcceptedAnswerId ClosedDate OwnerUserId "
        "OwnerDisplayName ContentLicense ParentId",
    ),
    "links": ("PostId RelatedPostId LinkTypeId", "CreationDate"),
}
_SHOWN = 20  # names in an error


@dataclass(frozen=True)
class Columns:
    """The options that say which columns a table has; None: by their names."""

    title: str | None = None
    text: str | None = None
    id: str | None = None
    tags: str | None = None
    date: str | None = None
    format: Markup = "auto"  # of the text

    @property
    def is_given(self) -> bool:
        """Whether the user has said anything, so that tables are what there is to read."""
        return self != BY_NAME


BY_NAME = Columns()


def dump_table(names: Sequence[str]) -> Literal["posts", "links"] | None:
    """Return the table of a dump that has such columns, in upper or lower case; None for any other table."""
    there = {name.lower() for name in names}
    if there >= {"linktypeid", "postid", "relatedpostid"}:
        return "links"
    return "posts" if there >= {"id", "posttypeid"} else None


def locate(columns: Columns, names: Sequence[str], table: Table, source: str) -> dict[str, int]:
    """Return the place of each attribute of a row among the columns `names` of the table `source`.

    Raises DupqError naming both if a column is missing, there twice, or cannot be guessed.
    """
    if table != "table":
        required, optional = _DUMP[table]
        lower = [name.lower() for name in names]
        attributes = [*required.split(), *(name for name in optional.split() if name.lower() in lower)]
        return {attribute: _place(attribute.lower(), lower, source) for attribute in attributes}
    options = {attribute: getattr(columns, option) for attribute, option in _OPTIONS.items()}
    found = {attribute: _place(name, names, source) for attribute, name in options.items() if name is not None}
    for attribute, obvious in _OBVIOUS.items():
        free = [place for place in range(len(names)) if place not in found.values()]
        guessed = [place for name in obvious for place in free if names[place].lower() == name]
        if attribute not in found and guessed:
            if attribute in ("Title", "Body") and len(guessed) > 1:
                option, several = _OPTIONS[attribute], listed([names[place] for place in guessed])
                raise DupqError(f"{source}: {several} may each be the {option}; say which with --{option} COLUMN")
            found[attribute] = guessed[0]
    if not found.keys() & {"Title", "Body"}:
        raise DupqError(
            f"{source}: which column is the question? name it with --title COLUMN, and its text with --text; "
            f"its columns are {listed(names)}"
        )
    return found


def _place(wanted: str, names: Sequence[str], source: str) -> int:
    places = [place for place, name in enumerate(names) if name == wanted]
    if len(places) != 1:
        state = f"is there {len(places)} times" if places else "is missing"
        raise DupqError(f"{source}: column '{wanted}' {state}; its columns are {listed(names)}")
    return places[0]


def listed(names: Sequence[str]) -> str:
    """Return column names for an error: printable and not without end, for they may be anything."""
    shown = ", ".join(repr(name[:40]) for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown or "none"
