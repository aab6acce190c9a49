"""How a dump becomes the archive's tables."""

from typing import Annotated

from pydantic import Field

from dupq.settings.section import Count, CountOrZero, MoreThanZero, Section, Share


class IngestSettings(Section):
    """The archive's tables."""

    shard_rows: Annotated[int, Field(ge=1, le=10_000_000)] = Field(50_000, description="Questions of a shard.")
    maximum_reject_share: Share = Field(0.001, description="Share of all rows; more rejects fail the run,")
    rejects_allowed: CountOrZero = Field(10, description="unless there are no more than this many.")
    maximum_body_bytes: Count = Field(1_000_000, description="UTF-8 bytes; a post with a longer body is rejected.")
    maximum_unpack_ratio: MoreThanZero = Field(
        200.0, description="Unpacked bytes a packed byte, beyond 64 MiB; a dump has 5 to 10."
    )
    maximum_unpacked_bytes: Annotated[int, Field(ge=1, le=1 << 60)] = Field(
        1 << 40, description="Unpacked bytes of one file."
    )
