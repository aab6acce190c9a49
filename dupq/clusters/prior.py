"""What other sites tell of evidence: the prior that a run's calibration starts from. Made by benchmarks/prior.py."""

import functools
import importlib.resources
import os

import numpy as np

from dupq import storage
from dupq.clusters.calibration import FEATURES, Prior
from dupq.errors import DupqError


@functools.cache
def read_prior() -> Prior:
    """The prior that ships with dupq, or the one in the file that DUPQ_PRIOR names."""
    place = os.environ.get("DUPQ_PRIOR") or str(importlib.resources.files("dupq") / "clusters" / "prior.json")
    values = storage.read_json(place)
    if tuple(values["features"]) != FEATURES:
        raise DupqError(f"{place}: made for other features; make it anew with benchmarks/prior.py")
    centres, scales, coefficients, spreads = (
        np.array(values[name], np.float64) for name in ("centres", "scales", "coefficients", "spreads")
    )
    a, b = values["linked"]
    return Prior(centres, scales, coefficients, spreads, (a, b), tuple(values["sites"]))
