"""From questions and answers to the texts that all later stages read: tokens, joined by single spaces."""

import pyarrow as pa
import pyarrow.compute as pc

from dupq.settings.config import Settings
from dupq.settings.text import TextSettings
from dupq.tables import TEXTS
from dupq.text.html import html_to_text
from dupq.text.punctuation import punctuated
from dupq.text.token_columns import token_texts
from dupq.text.token_ids import TokenIds
from dupq.text.tokens import tokens
from dupq.text.vocabulary import Vocabulary


def question_text(title: str, body_html: str, settings: TextSettings) -> tuple[str, str]:
    """A question's title and its whole text (title and body, as `settings.fields` says), tokenised.

    Both are tokens joined by single spaces, "" where there are none.
    """
    title_tokens = _tokens(title, settings)
    if settings.fields == "title":
        return " ".join(title_tokens), " ".join(title_tokens)
    body_tokens = _tokens(html_to_text(body_html, settings.code), settings)
    return " ".join(title_tokens), " ".join(title_tokens + body_tokens)


def texts_table(keys: pa.Array, titles: pa.Array, bodies: pa.Array, settings: TextSettings) -> pa.Table:
    """The TEXTS table of questions, row by row in the order given: `question_text` of each, words compiled."""
    shown = _token_texts(titles.to_pylist(), settings)
    texts = shown
    if settings.fields != "title":
        found = _tokens_of_html(bodies, settings)
        texts = pc.ascii_trim(pc.binary_join_element_wise(shown, found, pa.scalar(" ", pa.large_string())), " ")
    return pa.table([keys, shown.cast(pa.string()), texts.cast(pa.string())], schema=TEXTS)


def encoder_texts(table: pa.Table, settings: TextSettings) -> pa.ChunkedArray:
    """What an encoder reads of rows of TEXTS: the stored texts, with their titles `title_times` - 1 more times."""
    texts = table["text"]
    for _ in range(settings.title_times - 1):
        texts = pc.binary_join_element_wise(table["title"], texts, " ")
    return texts if settings.title_times == 1 else pc.ascii_trim(texts, " ")


def token_ids(table: pa.Table, vocabulary: Vocabulary, settings: Settings) -> tuple[TokenIds, int]:
    """The ids that an encoder with these settings reads of rows of TEXTS, and how many texts were cut."""
    return vocabulary.sequences(encoder_texts(table, settings.text), settings.encoder.maximum_tokens)


def answer_texts_table(keys: pa.Array, bodies: pa.Array, settings: TextSettings) -> pa.Table:
    """The TEXTS table of answers, which have no title, row by row in the order given."""
    texts = _tokens_of_html(bodies, settings).cast(pa.string())
    return pa.table([keys, pa.array([""] * len(texts), pa.string()), texts], schema=TEXTS)


def _tokens_of_html(bodies: pa.Array, settings: TextSettings) -> pa.Array:
    plain: list[str | None] = [html_to_text(body, settings.code) for body in bodies.to_pylist()]
    return _token_texts(plain, settings)


def _tokens(text: str, settings: TextSettings) -> list[str]:
    return tokens(text) if settings.tokens == "words" else punctuated(text, settings.tokens)


def _token_texts(texts: list[str | None], settings: TextSettings) -> pa.Array:
    """The tokens of each text joined by single spaces (large_string)."""
    if settings.tokens == "words":
        return token_texts(pa.array(texts, pa.large_string()))
    return pa.array([" ".join(_tokens(text or "", settings)) for text in texts], pa.large_string())
