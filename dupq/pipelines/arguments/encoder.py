"""Looking at the encoder that a job is given."""

from dupq.encoders.description import read_split
from dupq.text.keys import Sites


def check_encoder(encoder: str, sites: Sites) -> None:
    """Raise DupqError for an encoder that is missing, damaged, or has weights that are no numbers."""
    from dupq.encoders.saved import load  # with torch, which no other check needs

    load(encoder)
    read_split(encoder, sites)
