"""Questions to the texts that every later stage reads: tokens, joined by single spaces."""

import pyarrow as pa

from dupq.config import TextSettings
from dupq.tables import TEXTS
from dupq.text.html import html_to_text
from dupq.text.tokens import tokens


def question_text(title: str, body_html: str, settings: TextSettings) -> tuple[str, str]:
    """A question's title and its whole text (title and body, as `settings.fields` says), tokenised.

    Both are tokens joined by single spaces, "" where there are none.
    """
    title_tokens = tokens(title)
    if settings.fields == "title":
        return " ".join(title_tokens), " ".join(title_tokens)
    body_tokens = tokens(html_to_text(body_html, settings.code))
    return " ".join(title_tokens), " ".join(title_tokens + body_tokens)


def texts_table(keys: pa.Array, titles: pa.Array, bodies: pa.Array, settings: TextSettings) -> pa.Table:
    """The TEXTS table of questions, row by row in the order given."""
    pairs = [
        question_text(title, body, settings) for title, body in zip(titles.to_pylist(), bodies.to_pylist(), strict=True)
    ]
    columns = [
        keys,
        pa.array([title for title, _ in pairs], pa.string()),
        pa.array([text for _, text in pairs], pa.string()),
    ]
    return pa.table(columns, schema=TEXTS)
