"""Plain text and HTML: which of the two a column of texts holds, and plain text as HTML. Files and Python share it."""

import html
import re
from collections.abc import Iterable
from itertools import islice
from typing import Literal

Markup = Literal["auto", "html", "plain"]

_SAMPLE = 1_000
_CLOSING_TAG = re.compile(r"</[a-zA-Z][a-zA-Z0-9]*\s*>|<br\s*/?>")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def is_html(name: str, texts: Iterable[str | None], markup: Markup = "auto") -> bool:
    """Tell whether the column `name` holds HTML rather than plain text, unless `markup` says it.

    It does if its name ends in `html`, or more than half of its first 1,000 texts have a closing tag such as `</p>`.
    """
    if markup != "auto":
        return markup == "html"
    if name.lower().endswith("html"):
        return True
    sample = list(islice(filter(None, texts), _SAMPLE))
    return 2 * sum(_CLOSING_TAG.search(text) is not None for text in sample) > len(sample)


def as_html(text: str) -> str:
    """Return plain text as HTML; blank lines separate paragraphs."""
    lines = html.escape(text.replace("\r\n", "\n"), quote=False)
    paragraphs = (paragraph.strip("\n") for paragraph in _BLANK_LINES.split(lines))
    return "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs if paragraph.strip())
