"""Files of tensors against those of safetensors."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from dupq.encoders.saved import write_tensors

TENSORS = {
    "é/first": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array(7, np.int64),
    "a": np.array([[1.5], [2.5]]),
    "none": np.zeros((0, 4), np.float16),
    "c": np.array([1, 2], np.int32),
    "half": np.array([0.5], np.float16),
    "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "d": np.array([3], np.int64),
    "text": np.frombuffer(b"[1, 2]", np.uint8),
}


@pytest.mark.parametrize("names", [list(TENSORS), ["a"], ["half"], []])
def test_a_file_is_what_safetensors_writes(names: list[str], tmp_path: Path) -> None:
    tensors = {name: TENSORS[name] for name in names}
    write_tensors(str(tmp_path / "some.safetensors"), tensors)
    plain = {name: np.ascontiguousarray(tensor).reshape(tensor.shape) for name, tensor in tensors.items()}
    assert (tmp_path / "some.safetensors").read_bytes() == safetensors.numpy.save(plain)
