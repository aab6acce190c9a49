"""`dupq export` as a user calls it: what it refuses, what it leaves, and S3."""

from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_run import build_embedded_run

from dupq import storage
from dupq.cli import export as command
from dupq.cli import main
from dupq.errors import DupqError, SettingError
from dupq.export import csv_files, formats

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> str:
    return build_embedded_run(str(tmp_path))


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def end(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main.main(["export", *arguments])
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return end


@pytest.mark.parametrize("to", formats.FORMATS)
def test_each_format_is_written_and_what_opens_it_is_said(to: str, run: str, tmp_path: Path, call: Call) -> None:
    output = tmp_path / "deep" / "out"
    code, told, _ = call("--run", storage.parent(run), "--to", to, "--output", str(output))
    assert code == 0
    assert "open it with: " in told
    for line in told.splitlines()[:-1]:
        assert any(str(path) in line for path in output.iterdir())


def test_the_command_line_has_every_format(call: Call) -> None:
    assert tuple(formats.FORMATS) == command._FORMATS
    with pytest.raises(SettingError, match="--to svg: one of embedding-atlas, graphml"):
        formats.export("/nowhere", "svg", "/nowhere/out")
    code, _, told = call("--run", "x", "--to", "svg", "--output", "y")
    assert code == 2
    assert "invalid choice: 'svg'" in told
    assert told.count("\n") == 1


def test_an_output_that_exists_is_left_as_it_is(run: str, tmp_path: Path, call: Call) -> None:
    for there in (tmp_path / "a_file", tmp_path / "a_folder" / "kept"):
        there.parent.mkdir(exist_ok=True)
        there.write_text("kept")
        output = there if there.parent == tmp_path else there.parent
        code, _, told = call("--run", run, "--to", "csv", "--output", str(output))
        assert (code, told.count("\n")) == (1, 1)
        assert f"{output}: exists already" in told
        assert there.read_text() == "kept"


def test_nothing_is_written_into_a_run(run: str, call: Call) -> None:
    code, _, told = call("--run", run, "--to", "csv", "--output", f"{run}/pairs/csv")
    assert code == 1
    assert "is inside the run" in told


def test_a_run_that_is_not_finished_is_refused(run: str, tmp_path: Path, call: Call) -> None:
    storage.delete(f"{run}/_SUCCESS")
    code, _, told = call("--run", run, "--to", "graphml", "--output", str(tmp_path / "out"))
    assert code == 1
    assert "not finished" in told
    assert not (tmp_path / "out").exists()


def test_an_archive_that_is_gone_is_named(run: str, tmp_path: Path, call: Call) -> None:
    storage.delete_folder(str(tmp_path / "questions"))
    code, _, told = call("--run", run, "--to", "graphml", "--output", str(tmp_path / "out"))
    assert code == 1
    assert "questions: no such table" in told


@pytest.mark.parametrize("to", formats.FORMATS)
def test_a_damaged_table_is_named_and_nothing_is_left(to: str, run: str, tmp_path: Path, call: Call) -> None:
    Path(run, "pairs", "part-00001.parquet").write_text("damaged")
    code, _, told = call("--run", run, "--to", to, "--output", str(tmp_path / "out"))
    assert (code, told.count("\n")) == (1, 1)
    assert "pairs: cannot be read" in told
    assert not (tmp_path / "out").exists()


def test_working_files_that_cannot_be_written_are_the_disks_error(
    run: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    code, _, told = call("--run", run, "--to", "csv", "--output", str(tmp_path / "out"))
    assert (code, told.count("\n")) == (5, 1)
    assert f"{tmp_path / 'gone'}: cannot be written (No such file or directory); make room, or set TMPDIR" in told


def test_one_that_is_interrupted_leaves_nothing(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(csv_files, "_with_titles", interrupted)
    with pytest.raises(KeyboardInterrupt):
        formats.export(run, "csv", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_from_s3_to_s3_is_the_same(tmp_path: Path, s3: str) -> None:
    here, there = build_embedded_run(str(tmp_path)), build_embedded_run(f"{s3}/export")
    for to in formats.FORMATS:
        formats.export(here, to, str(tmp_path / to))
        formats.export(there, to, f"{s3}/exported/{to}")
        names = [file.relative for file in storage.list_files(str(tmp_path / to))]
        assert [file.relative for file in storage.list_files(f"{s3}/exported/{to}")] == names
        for name in names:
            assert storage.read_bytes(f"{s3}/exported/{to}/{name}") == storage.read_bytes(str(tmp_path / to / name))
    with pytest.raises(DupqError, match="exists already"):
        formats.export(there, "csv", f"{s3}/exported/csv")
