"""Writing the XML format of Stack Exchange dumps."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape

from dupq.sample.grammar import Block
from dupq.sample.planting import Spelling

Attributes = Mapping[str, str | int | None]

_BYTE_ORDER_MARK = "\ufeff"
_NOT_SLUG = re.compile(r"[^a-z0-9]+")


def document(root: str, rows: Iterable[Attributes]) -> bytes:
    """A dump's file: byte-order mark, declaration, one line for each row, lines ended as on Windows."""
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f"<{root}>", *map(_row, rows), f"</{root}>"]
    return (_BYTE_ORDER_MARK + "\r\n".join(lines)).encode()


def _row(attributes: Attributes) -> str:
    """One row; an attribute that is None is left out, as dumps do."""
    pairs = [f'{name}="{_escaped(value)}"' for name, value in attributes.items() if value is not None]
    return f"  <row {' '.join(pairs)} />"


def _escaped(value: str | int) -> str:
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("\n", "&#xA;")


def moment_text(moment: datetime) -> str:
    """As dumps write times: UTC, milliseconds, no zone."""
    return moment.isoformat(timespec="milliseconds")


def body_html(blocks: Iterable[Block], spelling: Spelling) -> str:
    """A body's HTML. All spellings have the same tokens: `spaced` has wider gaps, `marked` other elements."""
    return "".join(_block_html(block, spelling) for block in blocks)


def _block_html(block: Block, spelling: Spelling) -> str:
    if block.tag != "p" or spelling == "usual":
        return f"<{block.tag}>{block.inner}</{block.tag}>\n"
    if spelling == "spaced":
        wider = block.inner.replace(". ", ".\n  ")
        return f"<p>{wider}  </p>\n\n"
    return f"<div><strong>{block.inner}</strong><br /></div>\n"


def duplicate_note(site: str, question_id: int, title: str) -> str:
    """The note that older dumps put at the top of a body that was closed as a duplicate."""
    slug = _NOT_SLUG.sub("-", title.lower()).strip("-")
    return (
        "<blockquote>\n<p><strong>Possible Duplicate:</strong><br>\n"
        f'<a href="https://{site}/questions/{question_id}/{slug}">{escape(title, quote=False)}</a></p>\n'
        "</blockquote>\n\n"
    )
