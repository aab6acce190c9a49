"""The example for Airflow in docs/cluster.md, with stand-ins for Airflow, which is not here, and for dupq."""

import subprocess
import sys
import types
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from shown_commands import ROOT, blocks, job_of

from dupq.errors import GateError, RejectsError, SettingError

[EXAMPLE] = [block.lines for block in blocks((ROOT / "docs/cluster.md").read_text()) if block.language == "py"]
REFUSED = [error.EXIT_CODE for error in (SettingError, RejectsError, GateError)]


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


@pytest.mark.parametrize("code", [0, 1, 5, 6, 7, 70, 137, *REFUSED])
def test_a_night_is_three_commands_and_what_is_refused_is_not_retried(
    code: int, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[list[str]] = []

    def run(command: list[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        called.append(command)
        return subprocess.CompletedProcess(command, code if command[1] == "dedup" else 0)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(AirflowFailException if code in REFUSED else RuntimeError) if code else nullcontext():
        told["function"]()
    assert [words[1] for words in called] == ["ingest", "dedup", "prune"][: 2 if code else 3]
    assert {"--max-change", "--min-rows-share"} < set(called[1])
    assert all(job_of(" ".join(words)) for words in called)
    assert told["retries"] == 2
