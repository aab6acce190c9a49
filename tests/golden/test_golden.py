"""Each stage answers as it did, or the version in its `@stage` says that it does not.

Numbers may be off by what another processor rounds otherwise; all else is exact.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from golden import observe as golden
from inline import without_ray

KEPT = json.loads(golden.ANSWERS.read_text())
WRITE = "`PYTHONPATH=.:tests:tests/helpers python tests/golden/observe.py`"
STAGES = [(job, stage) for job, stages in KEPT["answers"].items() for stage in stages]


@pytest.fixture(scope="module")
@without_ray()
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = golden.observe(tmp_path_factory.mktemp("golden"))
    return json.loads(json.dumps(found, default=float))


def differences(now: Any, then: Any, place: str = "") -> Iterator[str]:
    """Where two answers differ."""
    if isinstance(then, dict) and isinstance(now, dict) and now.keys() == then.keys():
        for name in then:
            yield from differences(now[name], then[name], f"{place}.{name}")
    elif isinstance(then, list) and isinstance(now, list) and len(now) == len(then):
        for number, (one, other) in enumerate(zip(now, then, strict=True)):
            yield from differences(one, other, f"{place}[{number}]")
    elif isinstance(then, float) and isinstance(now, float):
        if not math.isclose(now, then, rel_tol=5e-3, abs_tol=5e-3):
            yield f"{place}: {now}, not {then}"
    elif now != then:
        yield f"{place}: {now!r:.200}, not {then!r:.200}"


@pytest.mark.parametrize(("job", "stage"), STAGES)
def test_a_stage_answers_as_its_version_did(job: str, stage: str, answers: dict[str, Any]) -> None:
    found = list(differences(answers[job][stage], KEPT["answers"][job][stage]))
    assert not found, (
        f"{job}: the answer of '{stage}', or of a stage before it, changed: {found[:5]}. If that is wanted, raise its "
        f"version in its @stage, say so in CHANGELOG.md, and run {WRITE}"
    )


def test_the_answers_are_those_of_todays_versions() -> None:
    assert KEPT["versions"] == golden.numbers(), f"run {WRITE} after a version was raised"
