"""Turning rows parsed by compiled code into Arrow columns, without copying the texts."""

import numpy as np
import pyarrow as pa

from dupq.dump.xml.plain_rows import PlainRows


def numbers(rows: PlainRows, index: int, data_type: pa.DataType | None = None) -> pa.Array:
    """The integers in row `index` of `PlainRows.numbers`; null where a row has none."""
    return pa.array(rows.numbers[index], mask=~rows.present[index]).cast(data_type or pa.int64())


def times(rows: PlainRows, index: int) -> pa.Array:
    """Likewise, as UTC times in milliseconds."""
    return numbers(rows, index).cast(pa.timestamp("ms", tz="UTC"))


def texts(rows: PlainRows, index: int) -> pa.StringArray:
    """The strings in row `index` of `PlainRows.texts`; "" where a row has none."""
    offsets = rows.offsets[index]
    return pa.StringArray.from_buffers(
        len(offsets) - 1,
        pa.py_buffer(np.ascontiguousarray(offsets)),
        pa.py_buffer(rows.texts[index, : offsets[-1]]),
    )


def with_nulls(strings: pa.StringArray) -> pa.StringArray:
    """`strings`, null where they are empty."""
    offsets = np.frombuffer(strings.buffers()[1], np.int32, len(strings) + 1)
    is_there = np.packbits(offsets[1:] > offsets[:-1], bitorder="little")
    return pa.StringArray.from_buffers(len(strings), *strings.buffers()[1:], pa.py_buffer(is_there))
