"""The sections of a job's settings: frozen models that check their values, with one-line errors."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dupq.errors import SettingError

ONLY_HOW = "only how"  # marks a setting that does not change the answer, only how it is computed
BY_CONTENT = "by content"  # marks a URI: the content there identifies a run, not the URI

_MOST = 1_000_000_000  # more than any archive has of anything
Count = Annotated[int, Field(ge=1, le=_MOST)]
CountOrZero = Annotated[int, Field(ge=0, le=_MOST)]
Length = Annotated[int, Field(ge=1, le=16_384)]  # of a vector
Components = Annotated[int, Field(ge=0, le=1_000)]  # principal components
Words = Annotated[int, Field(ge=1, le=1_000)]  # consecutive words
Batch = Annotated[int, Field(ge=1, le=1_000_000)]
Passes = Annotated[int, Field(ge=1, le=10_000)]
PassesOrNone = Annotated[int, Field(ge=0, le=10_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Negatives = Annotated[int, Field(ge=0, le=10_000)]  # per positive pair
MoreThanZero = Annotated[float, Field(gt=0, le=1e9)]


def _split(value: object) -> object:
    return tuple(name for name in value.split(",") if name) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Widths = Annotated[tuple[Words, ...], BeforeValidator(_split), Field(min_length=1, max_length=100)]


class Section(BaseModel):
    """A section of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, values: Mapping[str, object], section: str = "") -> Self:
        """Return the section with these values, which may be texts as on a command line.

        Raises SettingError that names the first wrong setting, in the section called `section`.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            fault = error.errors()[0]
            path = ".".join(map(str, (section, *fault["loc"]) if section else fault["loc"]))
            rule = _RULES.get(fault["type"], fault["msg"]).format(**fault.get("ctx", {}))
            if fault["type"] == "less_than_equal" and fault["ctx"]["le"] == 1:
                rule += _as_share(fault["input"])
            raise SettingError(f"setting '{path}' is {fault['input']!r}; {rule}") from None

    def changed(self, **values: object) -> Self:
        """Return a copy with other values. Raises SettingError for a wrong one."""
        return type(self).parse({**dict(self), **values}, type(self).__name__)


def _as_share(value: object) -> str:
    """Return a hint for somebody who wrote a share in per cent."""
    percent = float(str(value))
    return f" ({percent:g} % is {percent / 100:g})" if percent <= 100 else ""


_RULES = {  # what is said of a wrong value, by pydantic's type of the error
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


Language = Literal[
    "auto", "arabic", "chinese", "english", "french", "german", "italian", "japanese", "korean", "portuguese",
    "russian", "spanish", "thai", "turkish", "other",
]  # fmt: skip


class TextSettings(Section):
    """How a question becomes tokens.

    `code` and `fields` decide what is stored, which near duplicates, baselines and the encoder read; the others change
    only what the encoder reads.
    """

    code: Literal["removed", "kept", "prefixed"] = Field("removed", description="What becomes of code.")
    fields: Literal["title+body", "title"] = Field("title+body", description="What of a question is read.")
    title_times: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="How often the title is repeated before the body."
    )
    language: Language = Field(
        "auto",
        description="The language of stop words and stems. auto: that of at least 80 % of the titles, else "
        "other, determined when an encoder is trained, and English until then; other: no stop words, no stems.",
    )
    word_form: Literal["written", "stems"] = Field("written", description="The form of words.")


class IngestSettings(Section):
    """The archive's tables."""

    shard_rows: Annotated[int, Field(ge=1, le=1_000_000)] = Field(50_000, description="Questions per shard.")
    maximum_reject_share: Share = Field(
        0.001, description="Share of all rows; more rejects fail the run, unless they are ten or fewer."
    )


class NearDuplicateSettings(Section):
    """The lexical filter: MinHash-LSH over word shingles, every candidate verified."""

    shingle_size: Words = Field(3, description="Words of a shingle; letters, if a text is only a title.")
    permutations: Annotated[int, Field(ge=1, le=4_096)] = Field(128, description="Values of a signature.")
    threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="Jaccard coefficient from which a pair is a near duplicate, if its titles ask the same."
    )


class EncoderSettings(Section):
    """The network. Each kind declares more settings, beside it in dupq/encoders/ or the papers' networks.

    They are kept here unchecked, so that only processes that need the network load torch; `dupq.encoders.encoding`
    checks them.
    """

    model_config = ConfigDict(extra="allow")

    kind: str = Field("word_bag", description="The network.")
    maximum_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        512, description="Tokens read of a question; longer ones are cut, and counted."
    )

    @model_validator(mode="before")
    @classmethod
    def _freeze(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Turn lists, as JSON and TOML have them, into tuples."""
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


class WordVectorSettings(Section):
    """The word vectors that a network begins with."""

    algorithm: Literal["random", "teacher", "start"] = Field(
        "random",
        description="random: normal, of length 1 on average; teacher: its embeddings of single words; start: those of "
        "an encoder that training goes on from, with its other weights.",
    )
    start: Annotated[str, BY_CONTENT] = Field(
        "base", description="That encoder: base, which ships with dupq, or the URI of a saved one."
    )
    dimensions: Length = Field(200, description="Length of a vector, unless an encoder has it.")
    minimum_count: Count = Field(3, description="Words that occur less often are unknown.")
    words: Count = Field(1_000_000, description="The most frequent words kept; the others are unknown, and counted.")
    file: Annotated[str, BY_CONTENT] = Field(
        "", description="URI of vectors to read instead: the text of word2vec, fastText or GloVe, .gz too."
    )

    @property
    def learned_from(self) -> int | None:
        """The most questions whose text word2vec learns them from, 0 for all; None if it does not learn them."""
        return None

    @property
    def are_of_written_words(self) -> bool:
        """Whether words get the vectors of their written forms."""
        return False

    @property
    def goes_on(self) -> bool:
        """Whether training continues from an encoder. A file of vectors takes precedence."""
        return not self.file and self.algorithm == "start"


class TitleBodySettings(Section):
    """The first training phase: which body belongs to which title. Every archive has such pairs."""

    epochs: PassesOrNone = Field(0, description="Passes over the questions; 0: no such phase.")
    questions: Count = Field(1_000_000, description="Questions at most, chosen by a hash of their key.")
    batch_size: Batch = Field(512, description="Pairs per batch, of one site while it has enough.")


class TeacherSettings(Section):
    """The second training phase, on titles and bodies: the network learns the scores of a better, slower encoder."""

    encoder: Annotated[str, BY_CONTENT] = Field(
        "", description="URI of the saved encoder that teaches; none: no such phase."
    )
    questions: Count = Field(20_000, description="Questions that it encodes, at most, chosen by a hash of their key.")
    epochs: PassesOrNone = Field(12, description="Passes over the questions.")
    learning_rate: MoreThanZero = Field(0.0005, description="At the first step; it falls to 0.")


class TrainingSettings(Section):
    """Training on known duplicates: which pairs, and gradient descent with Adam on the softmax over a batch."""

    epochs: Passes = Field(10, description="Passes over the positive pairs.")
    batch_size: Batch = Field(16, description="Positive pairs per batch, of all workers together.")
    learning_rate: MoreThanZero = Field(0.005, description="Of Adam.")
    decay: Literal["none", "linear"] = Field("none", description="linear: the rate falls to 0 at the last step.")
    positives: Literal["closed", "links"] = Field("closed", description="closed: every pair of a set of duplicates.")
    negatives: Negatives = Field(1, description="Random questions per positive pair; 0 if there are others.")
    mined_negatives: Negatives = Field(
        0, description="Hard negatives per positive pair: the encoder's nearest questions that are no known duplicates."
    )
    development_pool: Count = Field(2_000, description="Questions that an epoch's development MAP is measured over.")
    checkpoint_seconds: Annotated[float, Field(ge=0, le=1e9), ONLY_HOW] = Field(
        30.0, description="Seconds between two checkpoints, at least; 0: one per epoch."
    )
    seed: Annotated[int, Field(ge=0, le=(1 << 32) - 1)] = Field(1, description="Of all random numbers in training.")


class EncodeSettings(Section):
    """How embeddings are made."""

    actors: Annotated[int, Field(ge=0, le=10_000), ONLY_HOW] = Field(
        0, description="Actors of Ray Data; 0: in large runs one per GPU or CPU."
    )
    batch_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Questions per batch; 0: 64 on a CPU, where few networks need batches, and on a GPU as many as "
        "have 262,144 words.",
    )


class NeighbourSettings(Section):
    """The search for the nearest questions, over all pairs."""

    k: Annotated[int, Field(ge=1, le=1_000)] = Field(10, description="Neighbours kept of each question.")
    scope: Literal["all", "site", "tags", "owner", "column"] = Field(
        "all",
        description="Which questions are compared: all; of one site; with a common tag; of one asker; with a common "
        "value in the column that ingest kept by its --scope.",
    )
    window: Annotated[int, Field(ge=0, le=100_000)] = Field(
        0, description="Days that may lie between questions that are compared; 0: any number."
    )
    sites: Names = Field((), description="The sites whose questions are searched; none: all.")
    block_rows: Annotated[int, Field(ge=0, le=1 << 20), ONLY_HOW] = Field(
        0, description="Questions per block; 0: as many as memory allows."
    )

    @property
    def has_scopes(self) -> bool:
        """Whether only some questions of a site are compared."""
        return self.scope not in ("all", "site") or self.window > 0


class CalibrationSettings(Section):
    """What a run's probabilities are fitted on, and how sure the pairs that join questions must be."""

    precision: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="Expected share of the pairs that may join questions that are duplicates."
    )
    links: CountOrZero = Field(1_000, description="Questions with known duplicates to calibrate on, at most.")
    sample: Count = Field(1_000, description="Other questions to calibrate on, at most, chosen by a hash of their key.")
    review: Annotated[int, Field(ge=4, le=1_000_000)] = Field(
        200, description="Pairs of the sample that people may judge."
    )
    prior: Annotated[str, BY_CONTENT] = Field(
        "", description="URI of another prior than dupq's own; benchmarks/prior.py makes them."
    )
    unfit: Literal["stop", "continue"] = Field(
        "stop", description="What to do if the encoder does not know the archive."
    )


class RerankerSettings(Section):
    """The second opinion: a sentence model reads the questions of likely pairs."""

    read: Literal["likely", "all"] = Field(
        "likely",
        description="likely: the questions of each site's likeliest pairs, and all of small sites; all: every "
        "question, whose nearest by the model become candidates too.",
    )


class JudgeSettings(Section):
    """The judge: a language model that reads the likeliest pairs. Nothing is asked without an address."""

    url: Annotated[str, ONLY_HOW] = Field(
        "", description="Address of an OpenAI-compatible endpoint, like http://localhost:11434/v1; none: no judge."
    )
    model: str = Field("", description="The model that is asked, by its name there.")
    pairs: Count = Field(500, description="Pairs of each site that it reads, at most: the likeliest.")
    tokens: Annotated[int, Field(ge=0, le=10**15)] = Field(
        0, description="Tokens of a run, at most, read and written; 0: no limit."
    )
    dollars: Annotated[float, Field(ge=0, le=1e9)] = Field(
        0.0, description="Cost of a run, at most, by the two prices; 0: no limit."
    )
    price_in: Annotated[float, Field(ge=0, le=1e6), ONLY_HOW] = Field(
        0.0, description="Dollars per million tokens that the model reads."
    )
    price_out: Annotated[float, Field(ge=0, le=1e6), ONLY_HOW] = Field(
        0.0, description="Dollars per million tokens that it writes."
    )
    max_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = Field(
        300, description="Tokens of an answer, at most. A model that thinks before it answers needs thousands."
    )
    connections: Annotated[int, Field(ge=1, le=256), ONLY_HOW] = Field(8, description="Calls at a time.")


class ClusterSettings(Section):
    """How pairs become clusters."""

    threshold: Annotated[float, Field(le=1)] = Field(
        -1.0, description="Probability from which a pair may join; below 0: the one for calibration.precision."
    )
    worklist: CountOrZero = Field(300, description="Pairs of the worklist, at most: the likeliest that are not joined.")
    known_links: Literal["use", "ignore", "check"] = Field(
        "check", description="use: they join; check: for calibration and measures only; ignore: as if there were none."
    )
    earlier: bool = Field(False, description="Whether the question to keep is the one that was asked first.")


class RunSettings(Section):
    """What a finished run keeps."""

    keep_work: Annotated[bool, ONLY_HOW] = Field(
        False, description="Whether all of work/ is kept, or only what a later run or a reader needs."
    )
