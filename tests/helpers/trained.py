"""What the fixture `trained_sample` gives."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainedSample:
    """The sample archive on the local disk, ingested, and an encoder trained on it."""

    dump: str
    truth: str
    archive: str
    questions: str
    links: str
    encoder: str
