"""The settings that only the papers' presets have: dupq's sections of texts, words and training, with more in them."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from dupq.errors import SettingError
from dupq.settings.sections import (
    CountOrZero,
    MoreThanZero,
    Passes,
    Section,
    Share,
    TextSettings,
    TrainingSettings,
    Words,
    WordVectorSettings,
)

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


class PaperWordVectors(WordVectorSettings):
    """gensim word2vec on the archive's own text, or vectors of a file or a teacher."""

    algorithm: Literal["skip-gram", "cbow", "random", "teacher", "start"] = Field(  # type: ignore[assignment]
        "random",
        description="skip-gram and cbow: of word2vec; teacher: its embeddings of single words; the others are dupq's.",
    )
    window: Words = Field(5, description="Words on either side that a word is learned from.")
    epochs: Passes = Field(5, description="Passes over the text.")
    objective: Literal["negative-sampling", "hierarchical-softmax", "both"] = Field(
        "negative-sampling", description="What word2vec learns by."
    )
    negative: Annotated[int, Field(ge=1, le=10_000)] = Field(
        5, description="Noise words per word, unless the objective is hierarchical softmax alone."
    )
    sample: Share = Field(1e-3, description="Share of the text from which a word is down-sampled; 0: none is.")
    sentences: CountOrZero = Field(
        1_000_000,
        description="Questions that word2vec learns from at most, chosen by a hash of their key, and as many answers; "
        "0: all. Words are counted in all of them.",
    )
    file_words: Literal["forms", "written"] = Field(
        "forms",
        description="How words are looked up in the file. forms: by their form of text.word_form; written: as the mean "
        "vector of the written words of that form, weighted by frequency, or by the form if none is in the file.",
    )

    @property
    def learned_from(self) -> int | None:
        """See WordVectorSettings."""
        return self.sentences if not self.file and self.algorithm in ("skip-gram", "cbow") else None

    @property
    def are_of_written_words(self) -> bool:
        """See WordVectorSettings."""
        return self.file_words == "written" if self.file else self.algorithm == "teacher"


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


SECTIONS: dict[str, type[Section]] = {
    "text": PaperText,
    "word_vectors": PaperWordVectors,
    "training": PaperTraining,
}
_OF_DUPQ: dict[str, type[Section]] = {
    "text": TextSettings,
    "word_vectors": WordVectorSettings,
    "training": TrainingSettings,
}
# settings of both that only the papers read at these values
_VALUES = {("text", "word_form"): ("lemmas",), ("word_vectors", "algorithm"): ("skip-gram", "cbow", "teacher")}
_READ_BY_PAPERS = {"word_vectors": ["file"]}  # settings of both that only the papers read


def names_of(section: str) -> list[str]:
    """Return the names of the settings that only the papers have in a section."""
    model = SECTIONS.get(section)
    return [] if model is None else [name for name in model.model_fields if name not in _OF_DUPQ[section].model_fields]


def read(section: str, entries: object) -> object:
    """Return a section that changes a setting of the papers as their model of it, and any other one without them."""
    own = names_of(section)
    if not own or not isinstance(entries, Mapping):
        return entries
    fields = SECTIONS[section].model_fields
    names = [*own, *_READ_BY_PAPERS.get(section, [])]
    is_changed = any(entries.get(name, fields[name].default) != fields[name].default for name in names)
    if is_changed or any(entries.get(name) in values for (of, name), values in _VALUES.items() if of == section):
        return SECTIONS[section].parse(entries, section)
    return {name: value for name, value in entries.items() if name not in own}
