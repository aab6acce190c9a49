"""Turning rows parsed by compiled code into Arrow columns, without copying the texts."""

import numpy as np
import pyarrow as pa

from dupq.dump.xml.plain_rows import PlainRows


def numbers(rows: PlainRows, place: int, data_type: pa.DataType | None = None) -> pa.Array:
    """The integers in row `place` of `PlainRows.numbers`; null where a row has none."""
    return pa.array(rows.numbers[place], mask=~rows.present[place]).cast(data_type or pa.int64())


def times(rows: PlainRows, place: int) -> pa.Array:
    """Likewise, as UTC times in milliseconds."""
    return numbers(rows, place).cast(pa.timestamp("ms", tz="UTC"))


def texts(rows: PlainRows, place: int) -> pa.StringArray:
    """The strings in row `place` of `PlainRows.texts`; "" where a row has none."""
    offsets = rows.offsets[place]
    return pa.StringArray.from_buffers(
        len(offsets) - 1,
        pa.py_buffer(np.ascontiguousarray(offsets)),
        pa.py_buffer(rows.texts[place, : offsets[-1]]),
    )


def with_nulls(strings: pa.StringArray) -> pa.StringArray:
    """`strings`, null where they are empty."""
    offsets = np.frombuffer(strings.buffers()[1], np.int32, len(strings) + 1)
    is_there = np.packbits(offsets[1:] > offsets[:-1], bitorder="little")
    return pa.StringArray.from_buffers(len(strings), *strings.buffers()[1:], pa.py_buffer(is_there))
