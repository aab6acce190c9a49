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


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the example told Airflow of its task when it was imported, and the task itself as `function`."""
    told: dict[str, Any] = {}

    def task(**options: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
        told.update(options)
        return lambda function: lambda: told.update(function=function)

    modules = {"airflow": {}, "airflow.sdk.exceptions": {"AirflowFailException": AirflowFailException}}
    modules["airflow.sdk"] = {"task": task, "dag": lambda **_: lambda function: function}
    for name, names in modules.items():
        module = types.ModuleType(name)
        vars(module).update(names)
        monkeypatch.setitem(sys.modules, name, module)
    exec(compile("\n".join(EXAMPLE), "docs/cluster.md", "exec"), {})
    return told


def ends_with(code: int, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Each `dupq dedup` ends with a code; returns the commands that will be called."""
    called: list[list[str]] = []

    def run(command: list[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        called.append(command)
        return subprocess.CompletedProcess(command, code if command[1] == "dedup" else 0)

    monkeypatch.setattr(subprocess, "run", run)
    return called


def test_a_night_is_three_commands_with_gates_and_retries(
    told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = ends_with(0, monkeypatch)
    told["function"]()
    assert [words[1] for words in called] == ["ingest", "dedup", "prune"]
    assert {"--max-change", "--min-rows-share"} < set(called[1])
    assert all(job_of(" ".join(words)) for words in called)
    assert told["retries"] == 2


def test_what_is_refused_is_not_retried_and_what_may_pass_is(
    told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {one.EXIT_CODE for one in (SettingError, RejectsError, GateError)}
    for code in (*refused, 1, 5, 6, 7, 70, 137):
        called = ends_with(code, monkeypatch)
        with pytest.raises(AirflowFailException if code in refused else RuntimeError):
            told["function"]()
        assert len(called) == 2
