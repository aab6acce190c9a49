"""TensorBoard event files, one an epoch, each written once and whole: so they can be on S3, and repeating an epoch
after a crash leaves no duplicate points.

A file is a sequence of records: length (8 bytes), its checksum (4), an Event message, its checksum (4). Messages and
checksum are those of tensorboardX, which Ray Train brings along.
"""

import struct
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from dupq.training.loop import Losses

_POINTS = 1_000  # of an epoch's curve at most: a point is the mean loss of one step, or of as many as are needed


class Scalar(NamedTuple):
    """One point of one curve."""

    tag: str
    step: int
    value: float


def file_name(epoch: int) -> str:
    """TensorBoard reads the files whose names hold `tfevents`, in the order of their names."""
    return f"events.out.tfevents.{epoch:010d}"


def epoch_scalars(epoch: int, losses: Losses, measures: Mapping[str, float | None]) -> list[Scalar]:
    """The points of an epoch (counted from 1): losses over the steps of all epochs, the epoch's loss and measures."""
    before = (epoch - 1) * len(losses.sums)
    spans = np.array_split(np.arange(len(losses.sums)), min(_POINTS, max(1, len(losses.sums))))
    points = [
        Scalar("loss/step", before + int(span[-1]) + 1, Losses(losses.sums[span], losses.examples[span]).mean)
        for span in spans
        if len(span)
    ]
    measured = [Scalar(name, epoch, value) for name, value in measures.items() if value is not None]
    return [*points, Scalar("loss/epoch", epoch, losses.mean), *measured]


def event_file(scalars: list[Scalar]) -> bytes:
    """An event file with these points, all with the current time."""
    now = time.time()
    events = [Event(wall_time=now, file_version="brain.Event:2")]
    for tag, step, value in scalars:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        events.append(Event(wall_time=now, step=step, summary=summary))
    return b"".join(_record(event.SerializeToString()) for event in events)


def _record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    checks = [struct.pack("<I", masked_crc32c(part)) for part in (length, content)]
    return length + checks[0] + content + checks[1]
