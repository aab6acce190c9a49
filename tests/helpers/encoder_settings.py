"""Settings of encoders for tests of several kinds."""

from typing import Any

from dupq.encoders.encoding import kinds
from dupq.settings.config import Settings

# bogdanova-max as it learns from the few links of a small archive, in seconds
QUICK_LEARNER = (
    "text.tokens=words",
    "training.learning_rate=0.1",
    "training.positives=closed",
    "training.negatives_drawn=each-epoch",
    "training.negative_pairs=linked",
)


def where_read(settings: Settings, **values: Any) -> Settings:
    """`settings` with those of the encoder's `values` that its network reads."""
    fields = kinds()[settings.encoder.kind].model_fields
    read = {name: value for name, value in values.items() if name in fields}
    return settings.changed(encoder=settings.encoder.changed(**read))
