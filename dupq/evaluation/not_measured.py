"""What a run cannot tell of itself, and why."""

from collections.abc import Mapping
from typing import Any


def not_measured(metrics: Mapping[str, Any], has_links: bool) -> dict[str, str]:
    """The reason for each measure of metrics.json that is null, or rests on nothing of this archive, by its name.

    `has_links`: the run was given links, and did not ignore them.
    """
    found, calibration = {}, metrics["calibration"]
    if metrics["links"] is None:
        why = "none has both questions in the archive, or the encoder was trained on all of them"
        found["links"] = (
            f"no known duplicates to test on ({why if has_links else 'the run was given no links, or ignored them'}): "
            "neither the recall nor the precision of clusters is known"
        )
    if not calibration["development_sets"] and not calibration["judged_pairs"]:
        found["calibration"] = (
            "no known duplicates to calibrate on, and no verdicts: probabilities are those of a prior, learned on "
            f"{len(calibration['prior_sites'])} other sites"
        )
    return found
