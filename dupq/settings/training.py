"""What training reads and how it descends."""

from typing import Annotated, Literal

from pydantic import Field

from dupq.settings.sections import (
    BY_CONTENT,
    ONLY_HOW,
    Batch,
    Count,
    CountOrZero,
    Length,
    MoreThanZero,
    Names,
    Passes,
    PassesOrNone,
    Section,
    Seed,
    Share,
    Words,
)

Negatives = Annotated[int, Field(ge=0, le=10_000)]


class WordVectorSettings(Section):
    """gensim word2vec on the archive's own text, or vectors that are there already."""

    algorithm: Literal["skip-gram", "cbow", "random", "teacher", "start"] = Field(
        "skip-gram",
        description="random: normal, of length 1 on average; teacher: its embeddings of single words; start: those of "
        "an encoder that training goes on from, with its other weights.",
    )
    start: Annotated[str, BY_CONTENT] = Field(
        "base", description="That encoder: base, which ships with dupq, or the URI of a saved one."
    )
    dimensions: Length = Field(200, description="Length of a vector, where they are not those of an encoder.")
    window: Words = Field(5, description="Words on either side that a word is learned from.")
    epochs: Passes = Field(5, description="Passes over the text.")
    minimum_count: Count = Field(3, description="Words that occur less often are unknown.")
    objective: Literal["negative-sampling", "hierarchical-softmax", "both"] = Field(
        "negative-sampling", description="What word2vec learns by."
    )
    negative: Annotated[int, Field(ge=1, le=10_000)] = Field(
        5, description="Noise words a word, unless the objective is hierarchical softmax alone."
    )
    sample: Share = Field(1e-3, description="Share of the text from which a word is down-sampled; 0: none is.")
    sentences: CountOrZero = Field(
        1_000_000,
        description="Questions that word2vec learns from at most, chosen by a hash of their key, and as many answers; "
        "0: all. Words are counted in all of them.",
    )
    words: Count = Field(1_000_000, description="The most frequent words kept; the others are unknown, and counted.")
    hashed: Annotated[int, Field(ge=0, le=100_000_000)] = Field(
        0, description="Ids that all other words share by a hash; 0: one for all."
    )
    file: Annotated[str, BY_CONTENT] = Field(
        "", description="URI of vectors to read instead: the text of word2vec, fastText or GloVe, .gz too."
    )
    file_words: Literal["forms", "written"] = Field(
        "forms",
        description="By what the file is searched: words in their form of text.word_form; or, written, the mean of the "
        "words of that form as they are in texts, weighted by how often, and the form where there is none.",
    )

    @property
    def is_learned(self) -> bool:
        """Whether word2vec learns them."""
        return not self.file and self.algorithm in ("skip-gram", "cbow")

    @property
    def goes_on(self) -> bool:
        """Whether training goes on from an encoder; a file of vectors takes its place."""
        return not self.file and self.algorithm == "start"


class TitleBodySettings(Section):
    """A first training phase: which body belongs to which title. Every archive has such pairs."""

    epochs: PassesOrNone = Field(0, description="Passes over the questions; 0: no such phase.")
    questions: Count = Field(1_000_000, description="Questions at most, chosen by a hash of their key.")
    batch_size: Batch = Field(512, description="Pairs of a batch, of one site as far as there are enough.")


class TeacherSettings(Section):
    """A phase after that on titles and bodies: to find alike what better and slower encoders find alike."""

    encoder: Annotated[Names, BY_CONTENT] = Field(
        (),
        description="URIs of saved encoders, which teach together: their mean cosine counts, and word vectors are the "
        "first one's; none: no such phase.",
    )
    questions: Count = Field(20_000, description="Questions at most that they encode, chosen by a hash of their key.")
    held_out: bool = Field(
        False, description="Whether they read the texts of the development and test parts too, not their duplicates."
    )
    epochs: PassesOrNone = Field(12, description="Passes over the questions.")
    learning_rate: MoreThanZero = Field(0.0005, description="At the first step; it falls to 0.")


class TrainingSettings(Section):
    """Training on known duplicates: which pairs, and gradient descent with Adam on the softmax over a batch."""

    epochs: Passes = Field(10, description="Passes over the positive pairs.")
    patience: PassesOrNone = Field(
        0, description="Epochs without a better development measure after which training stops; 0: it never does."
    )
    batch_size: Batch = Field(16, description="Positive pairs of a batch, of all workers together.")
    temperature: MoreThanZero = Field(0.05, description="What scores are divided by.")
    learning_rate: MoreThanZero = Field(0.005, description="Of Adam.")
    decay: Literal["none", "linear"] = Field("none", description="linear: the rate falls to 0 at the last step.")
    positives: Literal["closed", "links"] = Field("closed", description="closed: every pair of a set of duplicates.")
    negatives: Negatives = Field(1, description="Random questions per positive pair; 0 if there are others.")
    mined_negatives: Negatives = Field(
        0, description="Hard negatives per positive pair: the encoder's nearest questions that are no known duplicates."
    )
    development_pool: Count = Field(2_000, description="Questions that an epoch's development MAP is measured over.")
    checkpoint_seconds: Annotated[float, Field(ge=0, le=1e9), ONLY_HOW] = Field(
        30.0, description="At least so long between two checkpoints; 0: one an epoch."
    )
    seed: Seed = Field(1, description="Of all that training draws.")
