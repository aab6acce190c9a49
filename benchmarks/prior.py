"""Learn the prior of a run's calibration from several sites whose pairs were judged by reading.

    python benchmarks/prior.py --run out/cs/runs --run out/travel/runs … [--leave-out SITE] [--output FILE]

Each run is one of `jobs/dedup.py --set calibration.sample=1000000 --set calibration.links=1000000 --set
run.keep_work=true`, so that every question is sampled. benchmarks/verdicts/SITE.tsv holds the verdicts: pairs at the
top of an early model's order, a random share of the others, and on some sites pairs whose titles differ in their
numbers; judged by title and body as a moderator would ("a good answer to one serves the asker of the other"). Linked
pairs of the development part count too; pairs of training and test questions are in no run's sample.

Printed are for each site the log loss of the model that was learned without it, beside that of one constant for all,
and how many of its judged pairs are right where that model expects so many.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from dupq import storage
from dupq.clusters.calibration import FEATURES, Labelled, by_slope, designed, negative_log_likelihood, sloped
from dupq.evaluation.verdicts import parse_verdicts
from dupq.runs.reader import open_run
from dupq.tables import CALIBRATION_PAIRS

_VERDICTS = Path(__file__).parent / "verdicts"
_COEFFICIENT_SPREAD, _SITE_SPREAD = 0.3, 0.7  # of scaled coefficients round 0, and of a site's own intercept
_SITE_SLOPE_SPREAD = 0.5  # of the log of a site's own slope
_FREE_SPREAD = 10.0
_OWN_SPREADS = 0.5, 1.0  # of coefficients and intercept round the prior: an archive may be unlike all of these
_OWN_SLOPE_SPREAD = 0.75  # of the log of its slope
_LINKED = (3.0, 3.0)  # pseudo-counts of linked and unlinked duplicates of a site
_OWN_LINKED = (1.0, 1.0)  # of an archive: any share is as likely
_UNJUDGED_WEIGHT = 1.0  # of pairs that nobody judged or linked: most are none, but they are many and alike
_BINS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 1.0)


class Site(NamedTuple):
    """What is known of a site's pairs."""

    name: str
    labelled: Labelled
    is_whole: bool = True  # else its rate of duplicates is its own affair


def read_site(uri: str) -> Site:
    """The pairs of a run, with the verdicts on its site."""
    run = open_run(uri)
    names = sorted(run.metrics["sites"])
    table = storage.read_table(
        storage.join(run.uri, "work", "calibration", "pairs.parquet"), CALIBRATION_PAIRS
    ).to_pydict()
    keys = list(
        zip(
            table["site_left"],
            table["question_id_left"],
            table["site_right"],
            table["question_id_right"],
            strict=True,
        )
    )
    verdicts = {}
    for name in names:
        place = _VERDICTS / f"{name}.tsv"
        if place.exists():
            for verdict in parse_verdicts(place.read_text(), str(place)):
                verdicts[tuple(verdict[:4])] = verdict.verdict
    said = np.array([verdicts.get(key, "") for key in keys])
    linked = np.array(table["is_linked"])
    features = np.array(table["features"])
    is_judged = np.isin(said, ("same", "different")) & ~linked
    kept = said != "unsure"
    weights = np.array(table["weight"])
    weights = np.where(is_judged | linked, weights, weights * _UNJUDGED_WEIGHT)
    labelled = Labelled(
        features[kept],
        (linked | (said == "same"))[kept],
        weights[kept],
        is_judged[kept],
        np.where(is_judged, 0.0, np.array(table["log_rate"]))[kept],
    )
    return Site(names[0], labelled)


def learn(sites: list[Site], centres: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients that sites share, (F + 1,), and of each its own intercept, log of slope, and linked share."""
    designs = [designed(site.labelled.features, centres, scales) for site in sites]
    count = len(FEATURES) + 1

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        shared, own = parameters[:count], parameters[count:].reshape(len(sites), 3)
        far = shared[:-1] - _expected()
        value = 0.5 * float((far**2).sum()) / _COEFFICIENT_SPREAD**2
        gradient = np.zeros(len(parameters))
        gradient[: count - 1] = far / _COEFFICIENT_SPREAD**2
        for place, (site, design) in enumerate(zip(sites, designs, strict=True)):
            intercept, log_slope, linked = own[place]
            mine = np.concatenate([shared[:-1], [shared[-1] + intercept, log_slope, linked]])
            found, slopes = negative_log_likelihood(site.labelled, design, sloped(mine))
            slopes = by_slope(mine, slopes)
            a, b = _LINKED
            spread = _SITE_SPREAD if site.is_whole else _FREE_SPREAD
            value += found + 0.5 * (intercept / spread) ** 2 + 0.5 * (log_slope / _SITE_SLOPE_SPREAD) ** 2
            value += float(a * np.logaddexp(0.0, -linked) + b * np.logaddexp(0.0, linked))
            gradient[:count] += slopes[:-2]
            past = [intercept / spread**2, log_slope / _SITE_SLOPE_SPREAD**2, b * expit(linked) - a * expit(-linked)]
            gradient[count + 3 * place : count + 3 * place + 3] += slopes[-3:] + past
        return value, gradient

    start = np.concatenate([np.zeros(count - 1), [-4.0], np.tile([0.0, 0.0, logit(0.5)], len(sites))])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 5000}).x
    return found[:count], found[count:].reshape(len(sites), 3)


def _expected() -> np.ndarray:
    """The coefficients before any data: nothing, but for titles with other numbers: log-odds of -3."""
    return np.where(np.array(FEATURES) == "other_numbers", -1.0, 0.0)


def scaling(sites: list[Site]) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations of the features over judged and linked pairs, each site alike."""
    rows = [site.labelled.features[site.labelled.is_judged | site.labelled.labels] for site in sites]
    means, squares = (np.mean([(row**power).mean(axis=0) for row in rows], axis=0) for power in (1, 2))
    scales = np.sqrt(np.maximum(squares - means**2, 1e-4))
    scales[FEATURES.index("other_numbers")] = 1 / 3  # a flag: 1 is three deviations from 0
    means[FEATURES.index("other_numbers")] = 0.0
    return means, scales


def described(site: Site, coefficients: np.ndarray, centres: np.ndarray, scales: np.ndarray) -> dict[str, Any]:
    """How a model fares on a site's judged pairs."""
    judged = site.labelled.is_judged
    labels = site.labelled.labels[judged].astype(float)
    p = expit(designed(site.labelled.features[judged], centres, scales) @ coefficients)
    rate = np.clip(labels.mean(), 1e-3, 1 - 1e-3)
    bins = []
    for low, high in itertools.pairwise(_BINS):
        inside = (p >= low) & (p <= high if high == 1 else p < high)
        if inside.any():
            bins.append(f"{low:.2f}+: {labels[inside].sum():.0f}/{inside.sum()} ({p[inside].sum():.1f})")
    return {
        "site": site.name,
        "judged": int(judged.sum()),
        "same": int(labels.sum()),
        "linked": int((site.labelled.labels & ~judged).sum()),
        "log_loss": float(-(labels * np.log(p) + (1 - labels) * np.log1p(-p)).mean()),
        "log_loss_of_a_constant": float(-(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))),
        "right_of_judged (expected)": bins,
    }


def main() -> None:
    """Read, learn, compare, write."""
    parser = argparse.ArgumentParser(description="Learn the prior of calibration from several sites.")
    parser.add_argument("--run", action="append", required=True, metavar="URI")
    parser.add_argument("--partial", action="append", default=[], metavar="SITE", help="a site that is not whole")
    parser.add_argument("--leave-out", action="append", default=[], metavar="SITE")
    parser.add_argument("--output", metavar="FILE", help="where prior.json goes")
    arguments = parser.parse_args()
    sites = [site for site in map(read_site, arguments.run) if site.name not in arguments.leave_out]
    sites = [site._replace(is_whole=site.name not in arguments.partial) for site in sites]
    rows = []
    for place, site in enumerate(sites):
        others = sites[:place] + sites[place + 1 :]
        centres, scales = scaling(others)
        rows.append(described(site, learn(others, centres, scales)[0], centres, scales))
        print(json.dumps(rows[-1]))
    centres, scales = scaling(sites)
    coefficients, own = learn(sites, centres, scales)
    for name, value in zip((*FEATURES, "intercept"), coefficients, strict=True):
        print(f"{name:16} {value:8.3f}")
    for site, (intercept, log_slope, share) in zip(sites, own, strict=True):
        print(f"{site.name}: intercept {intercept:+.2f}, slope {np.exp(log_slope):.2f}, linked {expit(share):.2f}")
    print("mean log loss", np.mean([row["log_loss"] for row in rows]))
    if arguments.output:
        prior = {
            "features": list(FEATURES),
            "centres": centres.round(6).tolist(),
            "scales": scales.round(6).tolist(),
            "coefficients": coefficients.round(4).tolist(),
            "spreads": [_OWN_SPREADS[0]] * len(FEATURES) + [_OWN_SPREADS[1]],
            "slope_spread": _OWN_SLOPE_SPREAD,
            "linked": list(_OWN_LINKED),
            "sites": [site.name for site in sites],
            "left_out": rows,
        }
        Path(arguments.output).write_text(json.dumps(prior, indent=1) + "\n")


if __name__ == "__main__":
    main()
