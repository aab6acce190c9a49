"""The settings that only the papers' presets have: dupq's sections of texts and training, with more in them."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dupq.errors import SettingError
from dupq.settings.sections import CountOrZero, MoreThanZero, Section, TextSettings, TrainingSettings

WITHOUT_LEMMAS = ("chinese", "japanese", "korean", "thai", "other")


class PaperText(TextSettings):
    """How the papers' encoders read a question; `tokens` says what is stored of it."""

    word_form: Literal["written", "stems", "lemmas"] = Field(  # type: ignore[assignment]
        "written", description="The form of words."
    )
    tokens: Literal["words", "punctuation", "written"] = Field(
        "words",
        description="punctuation: also marks and symbols, as NLTK cuts them, 1 ms a question; written: the same, "
        "with the case kept until parts of speech are tagged; then lower case.",
    )
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
    def _fit_together(self) -> Self:
        if self.word_form == "lemmas" and self.language in WITHOUT_LEMMAS:
            raise SettingError(
                f"setting 'text.word_form' is 'lemmas', but there are none for text.language={self.language}; "
                "'stems' or 'written' expected"
            )
        if self.parts_of_speech != "all" and self.language not in ("auto", "english"):
            raise SettingError(
                f"setting 'text.parts_of_speech' is {self.parts_of_speech!r}; only English texts can be tagged; "
                f"'all' expected for text.language={self.language}"
            )
        if self.dates != "kept" and self.tokens != "words":
            raise SettingError(
                f"setting 'text.dates' is {self.dates!r}; dates are found among words only; "
                f"'kept' expected for text.tokens={self.tokens}"
            )
        return self


class PaperTraining(TrainingSettings):
    """How the papers' encoders learn from known duplicates."""

    loss: Literal["squared_error", "mean_squared_error", "logistic_ranking", "softmax"] = Field(
        "softmax", description="The loss (papers/dupq_papers/training.py); softmax is dupq's own."
    )
    gamma: MoreThanZero = Field(10.0, description="Of logistic_ranking.")
    optimizer: Literal["sgd", "adagrad", "adadelta", "adam"] = Field("adam", description="The optimizer.")
    gradient_clipping: Annotated[float, Field(ge=0, le=1e9)] = Field(
        0.0, description="Greatest length of the gradient of all parameters together; 0: not clipped."
    )
    pairs: CountOrZero = Field(0, description="Positive pairs at most, chosen by a hash of their keys; 0: all.")
    negatives_drawn: Literal["each-epoch", "once"] = Field("each-epoch", description="When negatives are drawn.")
    negative_pairs: Literal["linked", "random"] = Field(
        "linked",
        description="A random negative: a known duplicate and a random question, or two random questions; "
        "logistic_ranking and softmax are always trained on the first.",
    )
    anchors: Literal["together", "apart"] = Field(
        "together",
        description="logistic_ranking: a pair's losses from either of its questions in one step, or each in its own.",
    )


SECTIONS: dict[str, type[Section]] = {"text": PaperText, "training": PaperTraining}


def names_of(section: str) -> list[str]:
    """Return the names of the settings that only the papers have in a section."""
    of_dupq: dict[str, type[Section]] = {"text": TextSettings, "training": TrainingSettings}
    model = SECTIONS.get(section)
    return [] if model is None else [name for name in model.model_fields if name not in of_dupq[section].model_fields]


def read(section: str, entries: object) -> object:
    """Return a section that changes a setting of the papers as their model of it, and any other one without them."""
    own = names_of(section)
    if not own or not isinstance(entries, Mapping):
        return entries
    fields = SECTIONS[section].model_fields
    is_changed = any(entries.get(name, fields[name].default) != fields[name].default for name in own)
    if is_changed or entries.get("word_form") == "lemmas":
        return SECTIONS[section].parse(entries, section)
    return {name: value for name, value in entries.items() if name not in own}
