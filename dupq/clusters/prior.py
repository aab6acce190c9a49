"""The prior of a run's calibration, learned on other sites by benchmarks/prior.py."""

import importlib.resources
from typing import Annotated

import numpy as np
from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict

from dupq.clusters.calibration import FEATURES, Prior
from dupq.errors import DupqError
from dupq.json_files import read_as

_SHIPPED = importlib.resources.files("dupq") / "clusters"
OF_TITLES = str(_SHIPPED / "titles_prior.json")  # of pairs of titles without bodies, judged by them alone
_REMEDY = "make it anew with benchmarks/prior.py"
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Entries(TypedDict):
    """The file."""

    features: list[str]
    centres: list[FiniteFloat]
    scales: list[_Positive]
    coefficients: list[FiniteFloat]
    intercept_spread: _Positive
    slope_spread: _Positive
    coefficient_spread: _Positive
    linked: list[_Positive]
    teacher: list[FiniteFloat]
    sites: list[str]


def read_prior(uri: str = "") -> Prior:
    """The prior at `uri`, or the one that ships with dupq. Raises DupqError if it was made for other features."""
    place = uri or str(_SHIPPED / "prior.json")
    values = read_as(place, _Entries, _REMEDY)
    if tuple(values["features"]) != FEATURES:
        raise DupqError(f"{place}: made for other features; {_REMEDY}")
    columns = [values[name] for name in ("centres", "scales", "coefficients", "linked", "teacher")]
    features = len(FEATURES)
    if [len(column) for column in columns] != [features, features, features + 1, 2, 3]:
        raise DupqError(f"{place}: not as many numbers as there are features; {_REMEDY}")
    centres, scales, coefficients, (a, b), teacher = (np.array(column, np.float64) for column in columns)
    spreads = values["intercept_spread"], values["slope_spread"], values["coefficient_spread"]
    return Prior(centres, scales, coefficients, *spreads, (float(a), float(b)), teacher, tuple(values["sites"]))
