"""Settings of encoders for tests of several kinds."""

from typing import Any

from dupq.encoders.kinds import kinds
from dupq.settings.config import Settings


def where_read(settings: Settings, **values: Any) -> Settings:
    """`settings` with those of the encoder's `values` that its network reads."""
    fields = kinds()[settings.encoder.kind].model_fields
    read = {name: value for name, value in values.items() if name in fields}
    return settings.changed(encoder=settings.encoder.changed(**read))
