"""The papers' preprocessing of stored texts, as TextSettings say, before an encoder reads them.

The stored texts stay as the tokeniser made them, because the lexical filter and the baselines read them too. This step
comes between them and the vocabulary wherever an encoder reads a text; its settings are saved with it.

In this order: dates and numbers are masked, parts of speech and stop words are filtered, words go to lower case and get
their form, Arabic letters theirs. Word vectors learn from texts that are not filtered (Hazem et al. 2017, section 3,
step 2), so that a word keeps its neighbours. Tokens of code and links are never changed, only kept or left out.
"""

from collections.abc import Callable

import pyarrow as pa

from dupq.settings.text import TextSettings
from dupq.text import arabic
from dupq.text.numbers import NUMBER_TOKEN, mask_numbers
from dupq.text.parts_of_speech import content_words, content_words_of_sentences
from dupq.text.stop_words import is_stop_word
from dupq.text.tokens import CODE_PREFIX, LINK_TOKEN


class Normaliser:
    """From a stored text to the words that an encoder knows. Same text and settings, same words."""

    def __init__(self, settings: TextSettings) -> None:
        """`settings.code` and `settings.fields` are ignored: the stored text follows them already.

        It follows `settings.tokens` too, which says here whether the text has its case and its sentences' ends.
        """
        self._settings = settings
        self._form = _form(settings)
        self._is_written = settings.tokens == "written"
        self._is_masked = settings.dates == "date" or settings.digits == "num"
        self._is_filtered = (settings.links, settings.stop_words, settings.parts_of_speech) != ("token", "kept", "all")

    @property
    def is_identity(self) -> bool:
        """Whether a text is read as it is stored."""
        return self._form is None and not self._is_masked and not self._is_filtered

    @property
    def is_by_word(self) -> bool:
        """Whether each word is treated without a look at its neighbours, save that dates are masked first."""
        return self._settings.parts_of_speech == "all"

    def with_dates_masked(self, texts: pa.Array) -> pa.Array:
        """Stored texts with each date as one word where dates are masked, else as they are."""
        if self._settings.dates != "date":
            return texts
        words = ((text or "").split(" ") for text in texts.to_pylist())
        return pa.array([" ".join(mask_numbers(some, dates=True, digits=False)) for some in words], pa.large_string())

    def each_word(self, words: list[str]) -> tuple[list[str | None], list[bool]]:
        """For words one by one, where `is_by_word` and none is part of a date: their forms, and which are not filtered.

        The form of a word that its form leaves nothing of is None.
        """
        tokens = self._with_digits_masked(words)
        return self._left(tokens), self._kept(tokens)

    def each_form(self, words: list[str]) -> list[str | None]:
        """The forms of `each_word` alone, which hold for words beside others too, whatever is filtered."""
        return self._left(self._with_digits_masked(words))

    def all_words(self, text: str) -> list[str]:
        """Every word of a text, in its form: what word vectors are learnt from."""
        return self._in_form(self._tokens(text))

    def words(self, text: str) -> list[str]:
        """The words that an encoder reads, in their forms.

        A text of which the filters leave nothing ("how do I do this?") keeps all its words: it would have no embedding.
        """
        tokens = self._tokens(text)
        if self._is_filtered:
            tokens = self._filtered(tokens) or tokens
        return self._in_form(tokens)

    def _with_digits_masked(self, words: list[str]) -> list[str]:
        return mask_numbers(words, dates=False, digits=self._settings.digits == "num")

    def _left(self, tokens: list[str]) -> list[str | None]:
        return [form if form or self._form is None else None for form in self._forms(tokens)]

    def _tokens(self, text: str) -> list[str]:
        tokens = text.split(" ") if text else []
        if self._is_masked:
            return mask_numbers(tokens, self._settings.dates == "date", self._settings.digits == "num")
        return tokens

    def _filtered(self, tokens: list[str]) -> list[str]:
        return [token for token, keep in zip(tokens, self._kept(tokens), strict=True) if keep]

    def _kept(self, tokens: list[str]) -> list[bool]:
        settings = self._settings
        kept = [True] * len(tokens)
        if settings.parts_of_speech == "content":
            kept = [
                is_content and token not in (LINK_TOKEN, NUMBER_TOKEN)
                for token, is_content in zip(tokens, self._content(tokens), strict=True)
            ]
        if settings.links == "removed":
            kept = [keep and token != LINK_TOKEN for token, keep in zip(tokens, kept, strict=True)]
        if settings.stop_words == "removed":
            language = settings.language
            kept = [
                keep and not is_stop_word(token.lower() if self._is_written else token, language)
                for token, keep in zip(tokens, kept, strict=True)
            ]
        return kept

    def _content(self, tokens: list[str]) -> list[bool]:
        has_sentences = self._settings.tokens != "words"
        return content_words_of_sentences(tokens) if has_sentences else content_words(tokens)

    def _in_form(self, tokens: list[str]) -> list[str]:
        return [token for token in self._forms(tokens) if token] if self._form else tokens

    def _forms(self, tokens: list[str]) -> list[str]:
        form = self._form
        if form is None:
            return tokens
        return [token if token == LINK_TOKEN or token.startswith(CODE_PREFIX) else form(token) for token in tokens]


def _form(settings: TextSettings) -> Callable[[str], str] | None:
    """What is done to each word; None for nothing. Stems and lemmas come before letters: they know correct spelling."""
    steps: list[Callable[[str], str]] = [str.lower] if settings.tokens == "written" else []
    if settings.arabic == "normalised":
        steps.append(arabic.bare)
    if settings.word_form != "written":
        from dupq.text.word_forms import lemmas, stems

        steps.append((stems if settings.word_form == "stems" else lemmas)(settings.language))
    if settings.arabic == "normalised":
        steps.append(arabic.normalised)
    if not steps:
        return None

    def form(word: str) -> str:
        for step in steps:
            word = step(word) if word else word
        return word

    return form
