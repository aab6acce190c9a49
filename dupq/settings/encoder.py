"""The network's kind, and what all kinds read."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from dupq.settings.section import Section


class EncoderSettings(Section):
    """The network. Each kind declares more settings, in its own file of dupq/encoders/networks/.

    Here they are kept as they were given, so that no process that needs no network loads torch for them;
    `dupq.encoders.kinds` checks them.
    """

    model_config = ConfigDict(extra="allow")

    kind: str = Field("cnn", description="The network.")
    maximum_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        512, description="Tokens read of a question; longer ones are cut, and counted."
    )

    @model_validator(mode="before")
    @classmethod
    def _freeze(cls, values: dict[str, Any]) -> dict[str, Any]:
        """JSON and TOML have lists only."""
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
