"""Why a measure of a run is missing."""

from dupq.evaluation.measures import not_measured

KNOWN, UNKNOWN = ({"development_sets": sets, "judged_pairs": 0, "prior_sites": ["a", "b"]} for sets in (4, 0))


def test_each_missing_measure_has_its_reason_and_what_was_measured_none() -> None:
    for links, calibration, has_links, said in (
        ({"test_links": 2}, KNOWN, True, {}),
        ({"test_links": 2}, UNKNOWN | {"judged_pairs": 5}, True, {}),
        (None, KNOWN, False, {"links": "the run was given no links"}),
        (None, KNOWN, True, {"links": "no link is between two questions of the archive"}),
        ({"test_links": 2}, UNKNOWN, True, {"calibration": "of a prior, learned on 2 other sites"}),
    ):
        found = not_measured({"links": links, "calibration": calibration}, has_links)
        assert list(found) == list(said)
        assert all(reason in found[name] for name, reason in said.items())
