"""Arrow string columns as plain arrays, for compiled code that reads their bytes in place."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dupq.kernel_cache import numba


class Strings(NamedTuple):
    """n texts in UTF-8: those of text i are `data[offsets[i]:offsets[i + 1]]` (int64 offsets, uint8 data)."""

    offsets: np.ndarray
    data: np.ndarray


def strings_of(texts: pa.StringArray | pa.LargeStringArray) -> Strings:
    """The bytes of `texts`, none copied, read-only. An absent text counts as an empty one."""
    wide = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    if texts.null_count:
        texts = texts.fill_null("")
    _, indices, content = texts.buffers()
    if indices is None or not len(texts):
        return Strings(np.zeros(len(texts) + 1, np.int64), _read_only(b""))
    offsets = np.frombuffer(indices, np.int64 if wide else np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return Strings(offsets.astype(np.int64), _read_only(content if content is not None else b""))


def _read_only(content: pa.Buffer | bytes) -> np.ndarray:
    """One type of array whatever the buffer is, so that a kernel is compiled once."""
    data = np.frombuffer(content, np.uint8)
    data.flags.writeable = False
    return data


def string_array(strings: Strings, kind: pa.DataType) -> pa.Array:
    """The Arrow array of `kind` (string or large_string) over `strings`; their bytes are not copied.

    Raises ArrowInvalid if they are too many for `kind` (2 GiB for string).
    """
    count = len(strings.offsets) - 1
    buffers = [None, pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.large_string(), count, buffers).cast(kind)


@numba.njit(nogil=True, cache=True)
def longest(offsets: np.ndarray) -> np.int64:
    """The length of the longest stretch that `offsets` bound."""
    most = np.int64(0)
    for text in range(len(offsets) - 1):
        most = max(most, offsets[text + 1] - offsets[text])
    return most
