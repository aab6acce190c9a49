"""A task is skipped only if all that it wrote is there as it was written."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dupq import storage
from dupq.job.step import mark_of, unless_finished
from dupq.system import Written, recording, thread_map


class Task:
    """Writes two files and counts how often it does."""

    def __init__(self, folder: Path) -> None:
        self.main, self.other = str(folder / "main"), str(folder / "other" / "more")
        self.done = 0

    def make(self) -> dict[str, int]:
        self.done += 1
        storage.write_bytes(self.other, b"more")
        storage.write_bytes(self.main, b"main")
        return {"rows_out": 7}

    def run(self) -> dict[str, int]:
        return unless_finished(self.main, self.make)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    task = Task(tmp_path)
    assert task.run() == {"rows_out": 7}
    return task


def older(path: str) -> None:
    """Another file of the same size and time."""
    status = os.stat(path)
    Path(path).write_bytes(b"abcd")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("which", ["main", "other"])
@pytest.mark.parametrize("harm", [os.unlink, lambda path: Path(path).write_bytes(b"ma"), older])
def test_what_is_gone_cut_or_replaced_is_made_again(task: Task, which: str, harm: Callable[[str], None]) -> None:
    harm(getattr(task, which))
    assert task.run() == {"rows_out": 7}
    assert task.done == 2
    assert (Path(task.main).read_bytes(), Path(task.other).read_bytes()) == (b"main", b"more")
    task.run()
    assert task.done == 2


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b'{"counts": {}'])
def test_without_a_whole_mark_it_is_made_again(task: Task, content: bytes | None) -> None:
    mark = Path(mark_of(task.main))
    mark.unlink() if content is None else mark.write_bytes(content)
    task.run()
    assert task.done == 2


def test_a_mark_that_was_copied_elsewhere_speaks_for_nothing_there(task: Task, tmp_path: Path) -> None:
    copy = str(tmp_path / "elsewhere" / "main")
    storage.write_bytes(copy, b"rubbish")
    storage.write_bytes(mark_of(copy), Path(mark_of(task.main)).read_bytes())
    assert unless_finished(copy, lambda: {"made": 1}) == {"made": 1}


def test_what_was_written_is_recorded_whether_now_or_before(task: Task) -> None:
    with recording() as written:
        task.run()
    assert task.done == 1
    expected = {uri: Written(size=4, checksum=storage.checksum(uri)) for uri in (task.main, task.other)}
    assert written == expected
    os.unlink(mark_of(task.main))
    with recording() as outer, recording() as inner:
        task.run()
        storage.delete_folder(storage.parent(task.other))
    del expected[task.other]
    assert outer == inner == expected


def test_what_threads_of_a_task_write_and_delete_is_recorded_as_its_own(tmp_path: Path) -> None:
    with recording() as written:
        thread_map(lambda number: storage.write_bytes(f"{tmp_path}/{number}", b""), range(50))
        thread_map(lambda number: storage.delete(f"{tmp_path}/{number}"), range(0, 50, 2))
    assert written.keys() == {f"{tmp_path}/{number}" for number in range(1, 50, 2)}
