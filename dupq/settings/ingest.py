"""How a dump becomes the archive's tables."""

from typing import Annotated

from pydantic import Field

from dupq.settings.section import Section, Share


class IngestSettings(Section):
    """The archive's tables."""

    shard_rows: Annotated[int, Field(ge=1, le=10_000_000)] = Field(50_000, description="Questions of a shard.")
    maximum_reject_share: Share = Field(
        0.001, description="Share of all rows; more rejects fail the run, unless they are ten or fewer."
    )
