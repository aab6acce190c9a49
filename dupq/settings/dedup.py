"""What a run of the nightly job chooses, beside its encoder."""

from typing import Annotated, Literal

from pydantic import Field

from dupq.settings.section import BY_CONTENT, ONLY_HOW, Count, CountOrZero, Names, Section

Neighbours = Annotated[int, Field(ge=1, le=1_000)]
Workers = Annotated[int, Field(ge=0, le=10_000)]  # 0: as many as fit


class EncodeSettings(Section):
    """How embeddings are made."""

    actors: Annotated[Workers, ONLY_HOW] = Field(
        0, description="Actors of Ray Data; 0: one a GPU, or in large runs one a CPU."
    )
    batch_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Questions of a batch; 0: 64 on a CPU, where few networks need batches, and on a GPU as many as "
        "have 262,144 words.",
    )


class NeighbourSettings(Section):
    """All pairs."""

    k: Neighbours = Field(10, description="Neighbours kept of each question.")
    scope: Literal["all", "site"] = Field("all", description="site: only questions of one site are compared.")
    sites: Names = Field((), description="Only questions of these sites are searched; none named: of all.")
    block_rows: Annotated[int, Field(ge=0, le=1 << 20), ONLY_HOW] = Field(
        0, description="Questions of a block of a tile; 0: as memory allows."
    )


class CalibrationSettings(Section):
    """What a run's probabilities are made from, and how sure the pairs that join questions must be."""

    precision: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="Expected share of the pairs that may join questions that are duplicates."
    )
    links: CountOrZero = Field(1_000, description="Questions with known duplicates that are searched for it, at most.")
    sample: Count = Field(1_000, description="Other questions, at most, chosen by a hash of their key.")
    review: Annotated[int, Field(ge=4, le=1_000_000)] = Field(
        200, description="Pairs of the sample that people may judge."
    )
    prior: Annotated[str, BY_CONTENT] = Field(
        "", description="URI of another prior than dupq's own; benchmarks/prior.py makes them."
    )
    unfit: Literal["stop", "continue"] = Field(
        "stop", description="What to do where the encoder does not know the archive."
    )


class ClusterSettings(Section):
    """How pairs become clusters."""

    threshold: Annotated[float, Field(le=1)] = Field(
        -1.0, description="Probability from which a pair may join; below 0: as calibration.precision wants it."
    )
    worklist: CountOrZero = Field(300, description="Pairs of the worklist, at most: the likeliest that are not joined.")
    known_links: Literal["use", "ignore", "check"] = Field(
        "check", description="use: they join; check: for calibration and measures only; ignore: as if there were none."
    )


class EvaluationSettings(Section):
    """Measures on known duplicates."""

    queries: Count = Field(
        2_000,
        description="Test questions at most, chosen by a hash of their key; the metrics say how many of how many.",
    )


class RunSettings(Section):
    """What is left of a finished run."""

    keep_work: Annotated[bool, ONLY_HOW] = Field(
        False, description="Whether all of work/ is kept; else only what a later run or a reader needs."
    )
