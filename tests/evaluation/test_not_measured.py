"""Why a measure of a run is missing."""

from typing import Any

import pytest

from dupq.evaluation.measures import not_measured

WHOLE: dict[str, Any] = {
    "links": {"test_links": 2},
    "calibration": {"development_sets": 4, "judged_pairs": 0, "prior_sites": ["a", "b"]},
}
UNWEIGHED = {"development_sets": 0, "judged_pairs": 0, "prior_sites": ["a", "b"]}


def test_what_was_measured_has_no_reason() -> None:
    assert not_measured(WHOLE, has_links=True) == {}
    judged = {**UNWEIGHED, "judged_pairs": 5}
    assert not_measured({**WHOLE, "calibration": judged}, has_links=True) == {}


@pytest.mark.parametrize(
    ("changed", "has_links", "name", "reason"),
    [
        ({"links": None}, False, "links", "the run was given no links"),
        ({"links": None}, True, "links", "no link is between two questions of the archive"),
        ({"calibration": UNWEIGHED}, True, "calibration", "of a prior, learned on 2 other sites"),
    ],
)
def test_each_missing_measure_has_its_reason(changed: dict[str, Any], has_links: bool, name: str, reason: str) -> None:
    found = not_measured(WHOLE | changed, has_links)
    assert list(found) == [name]
    assert reason in found[name]
