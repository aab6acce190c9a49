"""Learn the prior of a run's calibration from readings of pairs, a language model's labels, on several sites.

    python benchmarks/prior.py --run out/cs/runs --run out/travel/runs … [--leave-out SITE] [--output FILE]
    python benchmarks/prior.py --titles [--leave-out SITE] [--output FILE]

Each run is one of `jobs/dedup.py --set calibration.sample=1000000 --set calibration.links=1000000 --set
run.keep_work=true`, so that every question is sampled. benchmarks/verdicts/SITE.tsv holds the readings, and which
reader (a language model) made them by which rule; no person confirmed them. "answer": a good answer to one question
serves the asker of the other, by title and body, without the probability and in random order. The readers got pairs at
the top of several orders, and a share of the others that falls with their rank: what was chosen by evidence alone does
not bend a model of that evidence. Pairs that people linked are left out: which duplicates get linked depends on more
than the evidence. Of the pairs far below (probability under FAR) a hash chooses some that count as different, so that
the model holds there too.

With --titles it is the prior of titles without bodies, which `dupq.find_duplicates` compares: from the dumps of
DUPQ_SHARED_DATA and benchmarks/verdicts/titles/SITE.tsv. "title": the reader saw the two titles and nothing else, and
took them for one question; titles such as "Is this language regular?" are unsure. Pairs in which the words decide for
certain (dupq/api/duplicates.py) are left out.

A third of the readings, by a hash of the pair, is never learned from. Printed are, for each site, by the model that was
learned from the other sites: how many of its pairs that were read are right where so many are expected, and the log
loss beside that of one constant; then the same over all sites, and over the third that is held out.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xxhash
from scipy.optimize import minimize
from scipy.special import expit
from titles import SHARED, titles_of

from dupq import storage
from dupq.api.duplicates import compare
from dupq.clusters.calibration import FEATURES, SCALES, TeacherModel, designed, features_of, read_prior
from dupq.evaluation.verdicts import parse_verdicts
from dupq.runs.reader import open_run
from dupq.tables import CALIBRATION_PAIRS, COSINES
from dupq.text.keys import pairs_in

_VERDICTS = Path(__file__).parent / "verdicts"
FAR, _FAR_PAIRS, _FAR_TITLES = 0.02, 1_500, 200
_SPREAD, _SITE_SPREAD = 0.3, 0.7  # of scaled coefficients round what is expected, and of a site's own intercept
_OWN_SPREADS = 1.0, 0.35, 0.2  # of an archive's intercept, of the log of its slope, and of each coefficient
_SAME_ASKING = 4.0  # log-odds: decides all pairs of titles that are not far from open
_OWN_LINKED = (1.0, 2.0)  # of an archive: .06 to .5 of the duplicates among the candidates of eight sites
# Flags keep their scale: log-odds that are expected before any data, and their spread.
_FLAGS = {
    "other_numbers": (-2.0, 1.0),
    "series": (-2.0, 1.0),
    "other_date": (-2.0, 1.0),
    "other_asking": (-3.0, 1.0),
    "other_formulas": (-1.0, 0.7),
    "same_asker": (-0.7, 0.7),
    "same_asker_alike": (1.0, 1.0),
    "cites": (-1.0, 0.7),
}
_LOWERING = {"rank", "title_swap", *_FLAGS} - {"same_asker_alike"}  # all others make a pair likelier, or nothing
_BINS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


class Site(NamedTuple):
    """What is known of a site's pairs."""

    name: str
    features: np.ndarray  # (n, F)
    same: np.ndarray  # bool
    is_judged: np.ndarray  # bool; else far below
    is_held_out: np.ndarray  # bool
    cosines: np.ndarray  # the teacher's, in standard deviations from their mean; NaN where it has not read both


def read_site(uri: str) -> Site:
    """The pairs of a run, with the readings on its site."""
    run = open_run(uri)
    name = min(run.metrics["sites"])
    table = storage.read_table(
        storage.join(run.uri, "work", "calibration", "pairs", "part-00000.parquet"), CALIBRATION_PAIRS
    )
    keys = list(zip(table["question_id_left"].to_pylist(), table["question_id_right"].to_pylist(), strict=True))
    is_linked = table["is_linked"].to_numpy()
    features = np.array(table["features"].to_pylist())
    usable = ~is_linked, ~is_linked & (table["probability"].to_numpy() < FAR)
    return _site(name, keys, features, _cosines(run.uri, len(table)), usable, _VERDICTS)


def read_titles(dump: Path) -> Site:
    """The pairs of a dump's titles, with the readings of them."""
    ids, titles = zip(*sorted(titles_of(dump).items()), strict=True)
    compared = compare(list(titles), None, None, "english", 10)
    pairs = pairs_in(compared.evidence)
    features = features_of(compared.evidence, compared.around, compared.scale.reference, compared.scale.k)
    keys = [(ids[left], ids[right]) for left, right in pairs.tolist()]
    is_open = compared.evidence["same_asking"].to_numpy() == 0
    far = is_open & (read_prior().model.probabilities(features) < FAR)
    unread = np.full(len(keys), np.nan)
    return _site(dump.stem, keys, features, unread, (is_open, far), _VERDICTS / "titles", _FAR_TITLES)


def _site(
    name: str,
    keys: list[tuple[int, int]],
    features: np.ndarray,
    cosines: np.ndarray,
    usable: tuple[np.ndarray, np.ndarray],
    verdicts_at: Path,
    far_pairs: int = _FAR_PAIRS,
) -> Site:
    """Those of the pairs that count; `usable` says which may if they were read, and which if they were not."""
    place = verdicts_at / f"{name}.tsv"
    verdicts = {tuple(verdict[1:4:2]): verdict.verdict for verdict in parse_verdicts(place.read_text(), str(place))}
    said = np.array([verdicts.get(key, "") for key in keys])
    hashes = np.array([xxhash.xxh3_64_intdigest(f"{name} {left} {right}".encode()) for left, right in keys])
    is_judged = np.isin(said, ("same", "different")) & usable[0]
    far = np.flatnonzero((said == "") & usable[1])
    kept = np.concatenate([np.flatnonzero(is_judged), far[np.argsort(hashes[far])][:far_pairs]])
    kept = kept[np.unique(hashes[kept], return_index=True)[1]]  # a pair that lists each other comes up twice
    return Site(name, features[kept], said[kept] == "same", is_judged[kept], hashes[kept] % 3 == 0, cosines[kept])


def _cosines(run: str, pairs: int) -> np.ndarray:
    """The teacher's scaled cosines of the pairs of calibration; NaN in a run without a teacher."""
    folder = storage.join(run, "work", "teacher")
    if not storage.exists(storage.join(folder, "model.json")):
        return np.full(pairs, np.nan)
    model = TeacherModel(**storage.read_json(storage.join(folder, "model.json")))
    cosines = storage.read_table(storage.join(folder, "cosines", "part-00000.parquet"), COSINES)["teacher"]
    return (cosines.fill_null(np.nan).to_numpy() - model.mean) / model.spread


def learn(sites: list[Site], centres: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The coefficients that sites share, (F + 1,)."""
    design = np.concatenate([designed(site.features, centres, scales) for site in sites])
    labels = np.concatenate([site.same for site in sites]).astype(float)
    owners = np.repeat(np.eye(len(sites)), [len(site.same) for site in sites], axis=0)
    expected, spreads = (np.array([_FLAGS.get(name, (0.0, _SPREAD))[side] for name in FEATURES]) for side in (0, 1))
    count = len(FEATURES)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        shared, own = parameters[: count + 1], parameters[count + 1 :]
        logits, far = design @ shared + owners @ own, (shared[:-1] - expected) / spreads
        value = float((np.logaddexp(0.0, logits) - labels * logits).sum() + 0.5 * (far @ far))
        value += 0.5 * float(own @ own) / _SITE_SPREAD**2
        off = expit(logits) - labels
        past = np.concatenate([far / spreads, [0.0], own / _SITE_SPREAD**2])
        return value, np.concatenate([design.T @ off, owners.T @ off]) + past

    bounds: list[Any] = [(None, 0.0) if name in _LOWERING else (0.0, None) for name in FEATURES]
    bounds += [(None, None)] * (1 + len(sites))
    start = np.concatenate([expected, [-4.0], np.zeros(len(sites))])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 5000}).x
    return np.array(found[: count + 1])


def learn_teacher(logits: list[np.ndarray], sites: list[Site]) -> np.ndarray:
    """The coefficients (3,) of a teacher's evidence, given each site's log-odds by a model of the other sites."""
    rows = [np.isfinite(site.cosines) & site.is_judged & ~site.is_held_out for site in sites]
    columns = [(logit[row], site.cosines[row]) for logit, site, row in zip(logits, sites, rows, strict=True)]
    design = designed(np.concatenate([np.stack(column, axis=1) for column in columns]), np.zeros(2), SCALES)
    labels = np.concatenate([site.same[row] for site, row in zip(sites, rows, strict=True)]).astype(float)
    owners = np.repeat(np.eye(len(sites)), [row.sum() for row in rows], axis=0)

    def loss(parameters: np.ndarray) -> float:
        scores = design @ parameters[:3] + owners @ parameters[3:]
        value = (np.logaddexp(0.0, scores) - labels * scores).sum()
        return float(value + 0.5 * (parameters[3:] @ parameters[3:]) / _SITE_SPREAD**2)

    return minimize(loss, np.r_[SCALES[0], np.zeros(2 + len(sites))], method="L-BFGS-B").x[:3]


def learned_from(sites: list[Site]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centres, scales and coefficients, without what is held out."""
    sites = [Site(site.name, *(column[~site.is_held_out] for column in site[1:])) for site in sites]
    centres, scales = scaling(sites)
    return centres, scales, learn(sites, centres, scales)


def scaling(sites: list[Site]) -> tuple[np.ndarray, np.ndarray]:
    """Means and deviations of the features over pairs that were read, each site alike; flags stay as they are."""
    rows = [site.features[site.is_judged] for site in sites]
    means, squares = (np.mean([(row**power).mean(axis=0) for row in rows], axis=0) for power in (1, 2))
    is_flag = np.array([name in _FLAGS for name in FEATURES])
    return np.where(is_flag, 0.0, means), np.where(is_flag, 1.0, np.sqrt(np.maximum(squares - means**2, 1e-4)))


def described(p: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """How a model fares on pairs that were read."""
    rate = np.clip(labels.mean(), 1e-3, 1 - 1e-3)
    bins = []
    for low, high in itertools.pairwise(_BINS):
        inside = (p >= low) & (p <= high if high == 1 else p < high)
        if inside.any():
            bins.append(f"{low:.2f}+: {labels[inside].sum():.0f}/{inside.sum()} ({p[inside].sum():.1f})")
    return {
        "judged": len(p),
        "same": int(labels.sum()),
        "log_loss": float(-(labels * np.log(p) + (1 - labels) * np.log1p(-p)).mean()),
        "log_loss_of_a_constant": float(-(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))),
        "right_of_judged (expected)": bins,
    }


def compared(sites: list[Site], probabilities: list[np.ndarray], note: str) -> list[dict[str, Any]]:
    """How the models of other sites fare on each site, on all, and on what is held out; printed too."""
    judged = [site.is_judged for site in sites]
    p = [some[row] for some, row in zip(probabilities, judged, strict=True)]
    labels = [site.same[row].astype(float) for site, row in zip(sites, judged, strict=True)]
    held = np.concatenate([site.is_held_out[row] for site, row in zip(sites, judged, strict=True)])
    cases = [(site.name, *case) for site, *case in zip(sites, p, labels, strict=True)]
    every = np.concatenate(p), np.concatenate(labels)
    cases += [("all", *every), ("held out", *(column[held] for column in every))]
    rows = [{"site": name + note, **described(*case)} for name, *case in cases]
    for row in rows:
        print(json.dumps(row))
    return rows


def main() -> None:
    """Read, learn, compare, write."""
    parser = argparse.ArgumentParser(description="Learn the prior of calibration from several sites.")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--run", action="append", default=[], metavar="URI")
    given.add_argument("--titles", action="store_true", help="the prior of titles without bodies, from all dumps")
    parser.add_argument("--leave-out", action="append", default=[], metavar="SITE")
    parser.add_argument("--output", metavar="FILE", help="where prior.json goes")
    arguments = parser.parse_args()
    dumps = sorted(SHARED.glob("*/*.7z")) if arguments.titles else []
    found = [*map(read_site, arguments.run), *map(read_titles, dumps)]
    sites = [site for site in found if site.name not in arguments.leave_out]
    logits = []
    for place, site in enumerate(sites):
        centres, scales, coefficients = learned_from(sites[:place] + sites[place + 1 :])
        logits.append(designed(site.features, centres, scales) @ coefficients)
    rows = compared(sites, [expit(some) for some in logits], "")
    teacher = np.zeros(3)
    if all(np.isfinite(site.cosines).any() for site in sites):
        taught = []
        for place, (logit, site) in enumerate(zip(logits, sites, strict=True)):
            others = slice(place), slice(place + 1, None)
            model = learn_teacher(*([column for some in others for column in all_[some]] for all_ in (logits, sites)))
            taught.append(TeacherModel(0.0, 1.0, *model).probabilities(expit(logit), site.cosines))
        rows += compared(sites, taught, ", with a teacher")
        teacher = learn_teacher(logits, sites)
        print("teacher", teacher.round(3))
    centres, scales, coefficients = learned_from(sites)
    for name, value in zip((*FEATURES, "intercept"), coefficients, strict=True):
        print(f"{name:16} {value:8.3f}")
    if arguments.output:
        prior = {
            "features": list(FEATURES),
            "centres": centres.round(6).tolist(),
            "scales": scales.round(6).tolist(),
            "coefficients": coefficients.round(4).tolist(),
            "intercept_spread": _OWN_SPREADS[0],
            "slope_spread": _OWN_SPREADS[1],
            "coefficient_spread": _OWN_SPREADS[2],
            "same_asking": _SAME_ASKING if arguments.titles else 0.0,
            "linked": list(_OWN_LINKED),
            "teacher": teacher.round(4).tolist(),
            "sites": [site.name for site in sites],
            "left_out": rows,
        }
        Path(arguments.output).write_text(json.dumps(prior, indent=1) + "\n")


if __name__ == "__main__":
    main()
