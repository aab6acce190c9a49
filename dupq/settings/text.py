"""How a question becomes tokens."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dupq.errors import SettingError
from dupq.settings.section import Section

Language = Literal[
    "auto", "arabic", "chinese", "english", "french", "german", "italian", "japanese", "korean", "portuguese",
    "russian", "spanish", "thai", "turkish", "other",
]  # fmt: skip
WITHOUT_LEMMAS = ("chinese", "japanese", "korean", "thai", "other")


class TextSettings(Section):
    """How a question becomes tokens.

    `code`, `tokens` and `fields` say what is stored, and read by the lexical filter, the baselines and the encoder; the
    others what only the encoder reads, made from that.
    """

    code: Literal["removed", "kept", "prefixed"] = Field("removed", description="What becomes of code.")
    tokens: Literal["words", "punctuation", "written"] = Field(
        "words",
        description="punctuation: also marks and symbols, as NLTK cuts them, 1 ms a question; written: the same, "
        "with the case kept until parts of speech are tagged; then lower case.",
    )
    fields: Literal["title+body", "title"] = Field("title+body", description="What of a question is read.")
    title_times: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="How often the title is repeated before the body."
    )
    language: Language = Field(
        "auto",
        description="The language of stop words, stems and lemmas. auto: that of most titles, found out when an "
        "encoder is trained, and English until then; other: one that has none.",
    )
    word_form: Literal["written", "stems", "lemmas"] = Field("written", description="The form of words.")
    stop_words: Literal["kept", "removed"] = Field("kept", description="What becomes of stop words.")
    parts_of_speech: Literal["all", "content"] = Field(
        "all", description="Which words are read; content: nouns, verbs and adjectives, English only."
    )
    links: Literal["token", "removed"] = Field("token", description="What becomes of links; token: LINK for each.")
    dates: Literal["kept", "date"] = Field("kept", description="What becomes of dates.")
    digits: Literal["kept", "num"] = Field("kept", description="What becomes of tokens of digits only.")
    arabic: Literal["written", "normalised"] = Field(
        "written", description="Arabic spelling: diacritics, stretching and letter forms."
    )

    @model_validator(mode="after")
    def _tagged(self) -> Self:
        if self.parts_of_speech != "all" and self.language not in ("auto", "english"):
            raise SettingError(
                f"setting 'text.parts_of_speech' is {self.parts_of_speech!r}; only English texts can be tagged; "
                f"'all' expected for text.language={self.language}"
            )
        if self.word_form == "lemmas" and self.language in WITHOUT_LEMMAS:
            raise SettingError(
                f"setting 'text.word_form' is 'lemmas', but there are none for text.language={self.language}; "
                "'stems' or 'written' expected"
            )
        if self.dates != "kept" and self.tokens != "words":
            raise SettingError(
                f"setting 'text.dates' is {self.dates!r}; dates are found among words only; "
                f"'kept' expected for text.tokens={self.tokens}"
            )
        return self
