"""The prior of a run's calibration, learned on other sites by benchmarks/prior.py."""

import importlib.resources

import numpy as np

from dupq import storage
from dupq.clusters.calibration import FEATURES, Prior
from dupq.errors import DupqError


def read_prior(uri: str = "") -> Prior:
    """The prior at `uri`, or the one that ships with dupq. Raises DupqError if it was made for other features."""
    place = uri or str(importlib.resources.files("dupq") / "clusters" / "prior.json")
    values = storage.read_json(place)
    if tuple(values["features"]) != FEATURES:
        raise DupqError(f"{place}: made for other features; make it anew with benchmarks/prior.py")
    centres, scales, coefficients, spreads = (
        np.array(values[name], np.float64) for name in ("centres", "scales", "coefficients", "spreads")
    )
    a, b = values["linked"]
    slope = float(values["slope_spread"])
    return Prior(centres, scales, coefficients, spreads, slope, (a, b), tuple(values["sites"]))
