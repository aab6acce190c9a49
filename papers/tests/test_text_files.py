"""Files of text, plain or packed by xz."""

import lzma
from pathlib import Path

import pytest

from dupq.errors import DupqError
from dupq_papers.data import text_files
from dupq_papers.data.text_files import read_text

ONE, TWO = lzma.compress(b"one\n"), lzma.compress(b"two\n")


def packed(folder: Path, content: bytes) -> str:
    (folder / "some.xz").write_bytes(content)
    return str(folder / "some.xz")


@pytest.mark.parametrize("padding", [b"", bytes(8)])
def test_several_streams_are_read_one_after_the_other(tmp_path: Path, padding: bytes) -> None:
    assert read_text(packed(tmp_path, ONE + padding + lzma.compress(b"") + TWO + padding)) == "one\ntwo\n"


@pytest.mark.parametrize(
    "content", [b"", ONE[:-4], ONE + TWO[:-4], ONE + b"no xz"], ids=["empty", "cut", "second cut", "rubbish"]
)
def test_a_file_without_a_whole_last_stream_is_damaged(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DupqError, match=r"some\.xz: damaged"):
        read_text(packed(tmp_path, content))


def test_the_bound_is_that_of_all_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "_MOST_BYTES", 9)
    assert read_text(packed(tmp_path, ONE + TWO)) == "one\ntwo\n"
    monkeypatch.setattr(text_files, "_MOST_BYTES", 8)
    with pytest.raises(DupqError, match="unpacks to 8 bytes or more"):
        read_text(packed(tmp_path, ONE + TWO))
