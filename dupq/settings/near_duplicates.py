"""The lexical filter."""

from typing import Annotated

from pydantic import Field

from dupq.settings.section import Section, Words


class NearDuplicateSettings(Section):
    """The lexical filter: MinHash-LSH over word shingles, every candidate verified."""

    shingle_size: Words = Field(3, description="Words of a shingle.")
    permutations: Annotated[int, Field(ge=1, le=4_096)] = Field(128, description="Values of a signature.")
    threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="Jaccard coefficient from which a pair is a near duplicate, if its titles ask the same."
    )
