"""The example for Airflow in docs/cluster.md, with stand-ins for Airflow, which is not here, and for dupq."""

import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from shown_commands import ROOT, blocks, job_of

from dupq.errors import GateError, RejectsError, SettingError

[EXAMPLE] = [block.lines for block in blocks((ROOT / "docs/cluster.md").read_text()) if block.language == "py"]


class AirflowFailException(Exception):  # noqa: N818
    """Fails a task without retries."""


class Night:
    """The example, imported, with what it told Airflow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.retries: dict[str, Any] = {}
        self.tasks: list[Callable[[], None]] = []

        def task(**options: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
            self.retries = options
            return lambda function: lambda: self.tasks.append(function)

        modules = {"airflow.sdk.exceptions": {"AirflowFailException": AirflowFailException}}
        modules["airflow.sdk"] = {"task": task, "dag": lambda **_: lambda function: function}
        for name in ("airflow", *modules):
            module = types.ModuleType(name)
            vars(module).update(modules.get(name, {}))
            monkeypatch.setitem(sys.modules, name, module)
        self.names: dict[str, Any] = {}
        exec(compile("\n".join(EXAMPLE), "docs/cluster.md", "exec"), self.names)


@pytest.fixture
def night(monkeypatch: pytest.MonkeyPatch) -> Night:
    return Night(monkeypatch)


def ends_with(code: int, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Each `dupq dedup` ends with a code; returns the commands that will be called."""
    called: list[list[str]] = []

    def run(command: list[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        called.append(command)
        return subprocess.CompletedProcess(command, code if command[1] == "dedup" else 0)

    monkeypatch.setattr(subprocess, "run", run)
    return called


def test_a_night_is_three_commands_with_gates_and_retries(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    called = ends_with(0, monkeypatch)
    (task,) = night.tasks
    task()
    assert [words[1] for words in called] == ["ingest", "dedup", "prune"]
    assert {"--max-change", "--min-rows-share"} < set(called[1])
    assert all(job_of(" ".join(words)) for words in called)
    assert night.retries["retries"] == 2


def test_what_is_refused_is_not_retried_and_what_may_pass_is(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    for code in (*(one.EXIT_CODE for one in (SettingError, RejectsError, GateError)), 1, 5, 6, 7, 70, 137):
        is_refused = code in (SettingError.EXIT_CODE, RejectsError.EXIT_CODE, GateError.EXIT_CODE)
        called = ends_with(code, monkeypatch)
        with pytest.raises(AirflowFailException if is_refused else RuntimeError):
            night.tasks[0]()
        assert len(called) == 2
