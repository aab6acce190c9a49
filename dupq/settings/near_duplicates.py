"""The lexical filter."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from dupq.errors import SettingError
from dupq.settings.section import Count, Section, Seed, Words

Permutations = Annotated[int, Field(ge=1, le=4_096)]
PermutationsOrZero = Annotated[int, Field(ge=0, le=4_096)]


class NearDuplicateSettings(Section):
    """The lexical filter: MinHash-LSH over word shingles, every candidate verified."""

    shingle_size: Words = Field(3, description="Words of a shingle.")
    permutations: Permutations = Field(128, description="Values of a signature.")
    threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="Jaccard coefficient from which a pair is a near duplicate, if its titles ask the same."
    )
    false_negative_weight: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.999, description="What a lost pair costs, where one compared in vain costs the rest to 1."
    )
    bands: PermutationsOrZero = Field(
        0, description="Bands of a signature; 0: bands and rows are chosen for the threshold."
    )
    rows: PermutationsOrZero = Field(0, description="Rows of a band; 0 with bands 0.")
    seed: Seed = Field(1, description="Seed of the permutations, as in datasketch.")
    chain_links: Count = Field(32, description="With how many that follow it in its bucket a question is paired.")
    bucket_limit: Count = Field(100, description="Size from which a bucket is chained by single links, and counted.")
    keep_signatures: bool = Field(
        True, description="Whether signatures are kept for look-ups: 4 bytes a permutation and question."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        both = self.bands >= 1 and self.rows >= 1 and self.bands * self.rows <= self.permutations
        if not both and (self.bands or self.rows):
            raise SettingError(
                f"setting 'near_duplicates.bands' is {self.bands}; bands * rows may be at most the {self.permutations} "
                "permutations, and neither or both may be 0"
            )
        return self
