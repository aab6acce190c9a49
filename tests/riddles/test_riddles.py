"""What other tests expect of the riddles rests on their bytes."""

import hashlib
from pathlib import Path

import py7zr
from riddles.grammar import write_sample


def test_every_machine_writes_these_bytes(tmp_path: Path) -> None:
    files = write_sample(tmp_path, questions=100)
    with py7zr.SevenZipFile(files.archive) as archive:
        archive.extract(tmp_path, ["Posts.xml"])
    digest = hashlib.sha256((tmp_path / "Posts.xml").read_bytes() + files.truth.read_bytes()).hexdigest()
    assert digest == "b6f336da330e35950fef4e6f884e7c8d233085af3e757ff26b4d8eef1cac44fd"
