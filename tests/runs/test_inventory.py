"""Runs on the local disk and on S3: their state, and what is removed of them."""

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dupq import storage
from dupq.errors import DupqError, StorageError
from dupq.job import progress
from dupq.job.records import Success
from dupq.runs import inventory
from dupq.runs.inventory import Keep, State, encoder_leftovers, known_runs, prune, status, tidy
from dupq.system import Written

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
KEPT_WORK = {
    "work/neighbours/nearest/part-00000.parquet",
    "work/texts/part-00000.parquet",
    "work/contents/part-00000.parquet",
    "work/signatures/part-00000.parquet",
    "work/calibration/calibration.json",
    "work/terms/rarities/part-00000.parquet",
    "work/rerank/model.json",
    "work/rerank/contents/part-00000.parquet",
    "work/rerank/vectors/part-00000.parquet",
}
OTHER_WORK = {
    "work/neighbours/directed/part-00000.arrow",
    "work/neighbours/tiles_made_by.json",
    "work/calibration/search-1/lists.parquet",
    "work/clusters/members/part-00000.parquet",
    "work/pairs/scored/part-00000.parquet",
    "work/rerank/scored/part-00000.parquet",
    "work/inputs/reranker/model.safetensors",
}


def write_run(output: str, number: int, *, is_whole: bool = True, previous: int | None = None) -> str:
    """A run of a few bytes; returns its folder."""
    run = f"{output}/{number:016x}"
    files = {"stages/texts.json", "clusters/part-00000.parquet", *KEPT_WORK, *OTHER_WORK}
    for name in files:
        storage.write_bytes(f"{run}/{name}", b"12345")
    if is_whole:
        inputs = {"questions": "/archive", "previous": f"{output}/{previous:016x}" if previous else None}
        storage.write_json(f"{run}/manifest.json", {"run_id": f"{number:016x}", "inputs": inputs})
        table = Written(size=5, checksum="")
        manifest = Written(size=storage.size(f"{run}/manifest.json"), checksum="")
        finished = (NOW - DAY + timedelta(seconds=number)).isoformat()
        success = Success(outputs={"clusters/part-00000.parquet": table, "manifest.json": manifest}, finished=finished)
        storage.write_json(f"{run}/_SUCCESS", success)
        storage.write_json(f"{output}/latest.json", {"run_id": f"{number:016x}", "run": run})
    return run


def age(folder: str, time: timedelta) -> None:
    """Make all files of a local folder, and the ends of its runs, older."""
    then = (NOW - time).timestamp()
    for path in Path(folder).rglob("_SUCCESS"):
        finished = f'"finished": "{(NOW - time).isoformat()}"'
        path.write_text(re.sub(r'"finished": ?"[^"]*"', finished, path.read_text()))
    for path in Path(folder).rglob("*"):
        os.utime(path, (then, then))


@pytest.fixture(params=["local", "s3"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """An empty folder on each kind of storage."""
    return str(tmp_path) if request.param == "local" else f"{request.getfixturevalue('s3')}/{tmp_path.name}"


def files_of(folder: str) -> set[str]:
    return {file.relative for file in storage.list_files(folder)}


def test_runs_are_found_with_state_size_and_what_they_build_on(tmp_path: Path) -> None:
    output = str(tmp_path)
    for number, days in ((1, 3), (2, 2)):
        age(write_run(output, number, previous=number - 1), days * DAY)
    age(write_run(output, 3, is_whole=False), DAY)
    with progress.of_stage(f"{output}/{4:016x}", "texts", {"previous": f"{output}/{2:016x}"}):
        runs = known_runs(output, NOW)
    progress.end(f"{output}/{4:016x}", "gate missed")
    states = [State.FINISHED, State.LATEST, State.UNFINISHED, State.RUNNING]
    assert [run.state for run in runs] == states
    assert [run.run_id for run in runs] == [f"{number:016x}" for number in (1, 2, 3, 4)]
    assert [run.previous for run in runs] == [None, f"{1:016x}", None, f"{2:016x}"]
    assert runs[2].size == 5 * (2 + len(KEPT_WORK) + len(OTHER_WORK))
    assert abs(runs[0].touched - (NOW - 3 * DAY)) < timedelta(seconds=2)
    assert known_runs(output, NOW)[-1].state is State.GATE_MISSED


def test_what_is_no_run_is_never_listed_and_so_never_removed(tmp_path: Path) -> None:
    storage.write_bytes(f"{tmp_path}/questions/site=a/part-00000.parquet", b"1")
    storage.write_bytes(f"{tmp_path}/{7:016x}/model.safetensors", b"1")  # named like a run, and none
    storage.write_bytes(f"{tmp_path}/notes/stages/texts.json", b"1")
    assert known_runs(str(tmp_path), NOW) == []
    with pytest.raises(DupqError, match="no runs here"):
        list(prune(str(tmp_path), [], Keep(1, 0), NOW, is_dry=False))


def test_all_goes_but_what_is_kept_at_any_depth(folder: str) -> None:
    for name in ("a/1", "a/b/2", "c/3", "c/.d/e/6", "kept/4", "5"):
        storage.write_bytes(f"{folder}/{name}", b"x")
    kept = {f"{folder}/kept", f"{folder}/a/1", f"{folder}/gone/7"}
    assert inventory.clear(folder, kept, really=False) == 4
    assert inventory.clear(folder, kept) == 4
    assert inventory.clear(folder, kept) == 0
    assert [file.relative for file in storage.list_files(folder)] == ["a/1", "kept/4"]


def test_of_work_only_what_a_later_run_or_a_reader_needs_is_kept(folder: str) -> None:
    run = write_run(folder, 1)
    assert tidy(run, really=False) == 5 * len(OTHER_WORK)
    assert files_of(run) >= OTHER_WORK
    assert tidy(run) == 5 * len(OTHER_WORK)
    assert files_of(run) == {"stages/texts.json", "clusters/part-00000.parquet", "manifest.json", *KEPT_WORK}
    assert tidy(run) == 0


def test_prune_removes_runs_and_work_and_says_so_and_when_dry_nothing(folder: str) -> None:
    output = folder
    for number in (1, 2, 3, 4):
        write_run(output, number, previous=number - 1)
    storage.write_json(f"{output}/{4:016x}/config.json", {"run": {"keep_work": True}})
    before = files_of(output)
    lines = list(prune(output, [], Keep(1, 0), NOW, is_dry=True))
    assert files_of(output) == before
    assert [line.split()[2] for line in lines[:3]] == [f"{number:016x}" for number in (1, 2, 3)]
    assert lines[-1].endswith("2 of 4 runs are kept")
    done = list(prune(output, [], Keep(1, 0), NOW, is_dry=False))
    assert [line.removeprefix("removed") for line in done] == [line.removeprefix("would remove") for line in lines]
    assert {name.split("/")[0] for name in files_of(output)} == {f"{3:016x}", f"{4:016x}", "latest.json"}
    assert not any(f"{3:016x}/{name}" in files_of(output) for name in OTHER_WORK)
    assert all(f"{4:016x}/{name}" in files_of(output) for name in OTHER_WORK)  # it was made to keep its work


def test_runs_that_go_on_or_are_made_again_while_others_are_removed_are_left_alone(tmp_path: Path) -> None:
    output = str(tmp_path)
    for number in (1, 2):
        age(write_run(output, number, is_whole=False), 6 * DAY)
    for number in (3, 4, 5):
        age(write_run(output, number), (6 - number) * DAY)
    lines = prune(output, [], Keep(2, 0), NOW, is_dry=False)
    assert f"{1:016x}" in next(lines)
    storage.write_bytes(f"{output}/{2:016x}/stages/signatures.json", b"{}")
    storage.delete(f"{output}/{4:016x}/_SUCCESS")
    list(lines)
    assert {run.run_id for run in known_runs(output, NOW)} == {f"{number:016x}" for number in (2, 4, 5)}
    assert files_of(f"{output}/{4:016x}") >= OTHER_WORK
    assert not files_of(f"{output}/{5:016x}") & OTHER_WORK


def test_nothing_is_removed_where_an_encoder_does_not_tell_what_made_it(tmp_path: Path) -> None:
    age(write_run(f"{tmp_path}/runs", 1, is_whole=False), 5 * DAY)
    write_run(f"{tmp_path}/runs", 2)
    age(write_run(f"{tmp_path}/encoder/work", 3), 5 * DAY)
    storage.write_bytes(f"{tmp_path}/encoder/encoder.json", b"{")
    with pytest.raises(DupqError, match=r"encoder\.json: not valid JSON"):
        list(prune(f"{tmp_path}/runs", [f"{tmp_path}/encoder"], Keep(1, 0), NOW, is_dry=False))
    assert len(known_runs(f"{tmp_path}/runs", NOW)) == 2
    assert len(known_runs(f"{tmp_path}/encoder/work", NOW)) == 1


def cut_success(run: str) -> None:
    storage.write_bytes(f"{run}/_SUCCESS", storage.read_bytes(f"{run}/_SUCCESS")[:9])


DAMAGES: dict[str, Callable[[str], None]] = {
    "no success to read": cut_success,
    "a table cut short": lambda run: storage.write_bytes(f"{run}/clusters/part-00000.parquet", b"1"),
    "a table gone": lambda run: storage.delete(f"{run}/clusters/part-00000.parquet"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_called_so_counts_as_no_finished_one_and_stays_until_somebody_decides(
    damage: str, tmp_path: Path
) -> None:
    output = str(tmp_path)
    for number, previous in {1: None, 2: None, 3: None, 4: 3, 5: 4}.items():
        write_run(output, number, previous=previous)
    for number in (4, 5):  # the latest one too
        DAMAGES[damage](f"{output}/{number:016x}")
    for number in range(1, 6):
        age(f"{output}/{number:016x}", (9 - number) * DAY)
    assert [run.state for run in known_runs(output, NOW)] == [State.FINISHED] * 3 + [State.DAMAGED] * 2
    assert status(output, NOW).splitlines()[1].startswith("state      damaged: its _SUCCESS")
    lines = list(prune(output, [], Keep(1, 0), NOW, is_dry=False))
    assert [line.split("  ")[:3] for line in lines if line.startswith("left")] == [
        ["left alone", f"{number:016x}", "damaged"] for number in (4, 5)
    ]
    assert [run.run_id for run in known_runs(output, NOW)] == [f"{number:016x}" for number in (3, 4, 5)]
    assert files_of(f"{output}/{4:016x}") >= OTHER_WORK
    assert not files_of(f"{output}/{3:016x}") & OTHER_WORK


def test_a_damaged_run_that_its_job_repairs_is_running(tmp_path: Path) -> None:
    run = write_run(str(tmp_path), 1)
    cut_success(run)
    with progress.of_stage(run, "texts", {}):
        assert [run.state for run in known_runs(str(tmp_path), NOW)] == [State.RUNNING]
    progress.end(run, "failed")
    assert status(run, NOW).splitlines()[1].startswith("state      damaged: ")


def test_what_may_not_be_read_is_an_error_and_no_reason_to_remove_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, read = str(tmp_path), storage.read_bytes
    for number in (1, 2, 3):
        age(write_run(output, number, previous=number - 1), (4 - number) * DAY)
    storage.write_json(f"{output}/{3:016x}/config.json", {"run": {"keep_work": True}})
    before = files_of(output)
    for name in ("latest.json", "manifest.json", "config.json"):

        def refuse(uri: str, name: str = name) -> bytes:
            if uri.endswith(f"{3:016x}/{name}") or uri == f"{output}/{name}":
                raise StorageError(f"{uri}: throttled")
            return read(uri)

        monkeypatch.setattr(storage, "read_bytes", refuse)
        with pytest.raises(StorageError, match=f"{name}: throttled"):
            list(prune(output, [], Keep(3, 0), NOW, is_dry=True))
    assert files_of(output) == before


def test_a_removal_that_is_cut_off_leaves_no_run_that_looks_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(str(tmp_path), 1)

    def lost(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "delete_folder", lost)
    with pytest.raises(KeyboardInterrupt):
        inventory._remove(str(tmp_path), known_runs(str(tmp_path), NOW)[0], NOW)
    assert not storage.exists(f"{run}/_SUCCESS")


def test_of_trainings_only_the_work_of_those_that_did_not_make_the_encoder_is_left_over(tmp_path: Path) -> None:
    encoder = f"{tmp_path}/encoder"
    for number, days in ((1, 5), (2, 4), (3, 0)):
        age(write_run(f"{encoder}/work", number), days * DAY)
    storage.write_json(f"{encoder}/encoder.json", {"run_id": f"{2:016x}"})
    assert [run.run_id for run in encoder_leftovers(encoder, NOW)] == [f"{1:016x}"]
    write_run(f"{tmp_path}/runs", 9)
    list(prune(f"{tmp_path}/runs", [encoder], Keep(1, 0), NOW, is_dry=False))
    assert {run.run_id for run in known_runs(f"{encoder}/work", NOW)} == {f"{2:016x}", f"{3:016x}"}


def test_status_tells_the_stage_the_pieces_and_since_when(tmp_path: Path) -> None:
    run = f"{tmp_path}/{1:016x}"
    with progress.of_stage(run, "encode", {}):
        progress.tell("encode", 3, 1_200)
        progress._write()
        lines = status(run, datetime.now(UTC)).splitlines()
        assert status(str(tmp_path), datetime.now(UTC)).splitlines() == lines
    assert lines[0] == f"run        {run}"
    assert lines[1].startswith("state      running, seen ")
    assert lines[2].startswith("stage      encode, for ")
    assert lines[3] == "step       encode: 3 of 1,200"
    later = datetime.now(UTC) + timedelta(hours=3)
    assert "state      cut off 3 h ago" in status(run, later)
    progress.end(run, "failed")
    assert "state      failed 3 h ago" in status(run, later)
    with pytest.raises(DupqError, match="no run is here"):
        status(f"{tmp_path}/nowhere", NOW)
