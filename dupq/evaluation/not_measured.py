"""What a run cannot tell of itself, and why."""

from collections.abc import Mapping
from typing import Any


def not_measured(metrics: Mapping[str, Any], has_links: bool) -> dict[str, str]:
    """The reason for each measure of metrics.json that is null, or rests on nothing of this archive, by its name.

    `has_links`: the run was given links, and did not ignore them.
    """
    found = {}
    known, calibration = metrics["known_duplicates"], metrics["calibration"]
    if known is None:
        found["known_duplicates"] = (
            "no known duplicate has both questions in the archive"
            if has_links
            else "the run was given no links, or ignored them"
        )
    elif not known.get("test_queries"):
        found["known_duplicates"] = "all known duplicates of the archive were seen when the encoder was trained"
    if metrics["links"] is None:
        found["links"] = "no known duplicates to test on: neither the recall nor the precision of clusters is known"
    if not calibration["development_sets"] and not calibration["judged_pairs"]:
        found["calibration"] = (
            "no known duplicates to calibrate on, and no verdicts: probabilities are those of a prior, learned on "
            f"{len(calibration['prior_sites'])} other sites"
        )
    return found
