"""Learn the prior of a run's calibration from several sites whose pairs language models judged by reading.

    python benchmarks/prior.py --run out/cs/runs --run out/travel/runs … [--leave-out SITE] [--output FILE]
    python benchmarks/prior.py --titles [--leave-out SITE] [--output FILE]

Each run is one of `jobs/dedup.py --set reranker.read=all --set run.keep_work=true`. benchmarks/verdicts/SITE.tsv holds
the readings, and by which rule. "answer": a good answer to one question serves the asker of the other, judged by title
and body, without the probability and in random order. Judged were pairs at the top of several orders, and a share of
the others that falls with their rank: what was chosen by evidence alone does not bend a model of that evidence. Pairs
that people linked are left out: which duplicates get linked depends on more than the evidence. Of the pairs far below
(probability under FAR) a hash chooses some that count as different, so that the model holds there too.

With --titles it is the prior of titles without bodies, from the dumps of DUPQ_SHARED_DATA and
benchmarks/verdicts/titles/SITE.tsv. "title": whoever reads the two titles and nothing else takes them for one question;
titles such as "Is this language regular?" are unsure. Pairs in which the words decide for certain (`same_asking`) are
left out.

There are two models: of all evidence but a reranker's, and of that model's log-odds with a reranker's cosine and some
flags (dupq/clusters/reranking.py). A third of the readings, by a hash of the pair, is never learned from. Printed are,
for each site, by models that were learned from the other sites: how many of its judged pairs are right where so many
are expected, and the log loss beside that of one constant; how many of the first 20, 50 and 100 pairs are right (of
those read) and expected; then the same over all sites, and over the third that is held out.
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from scipy.optimize import minimize
from scipy.special import expit
from titles import SHARED, titles_of

from dupq import storage
from dupq.api.duplicates import compare
from dupq.clusters.calibration import FEATURES, REREAD, Model, designed, features_of, read_prior
from dupq.clusters.reranking import ALIKE, Density, are_apart, cosines_of, reread_design
from dupq.encoders.sentence_models import WEIGHTS, default_reranker
from dupq.evaluation.verdicts import last_verdicts
from dupq.links import known_duplicates
from dupq.runs.reader import open_run
from dupq.tables import COMPARED, SCORED, TITLE_CONTEXT
from dupq.text.keys import MAXIMUM_ID, Sites, are_pairs_among, pair_indices, pairs_in

_VERDICTS = Path(__file__).parent / "verdicts"
FAR, _FAR_COSINE, _FAR_PAIRS, _FAR_TITLES = 0.02, 0.55, 1_500, 200
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
    "other_negation": (-1.0, 0.7),
    "other_order": (-1.0, 0.7),
    "other_words": (0.0, 0.2),  # bodies say more
    "other_formulas": (-1.0, 0.7),
    "same_asker": (-0.7, 0.7),
    "same_asker_alike": (1.0, 1.0),
    "cites": (-1.0, 0.7),
}
_LOWERING = {"rank", "title_swap", *_FLAGS} - {"same_asker_alike"}  # all others make a pair likelier, or nothing
# The same of the second model, whose features are scaled as in reranking.py. Readings would weigh the first model more,
# but sites that nobody tuned on weigh it less: so its coefficient has a narrow spread.
_REREAD = {
    "cosine": (1.0, 0.4),
    "log_odds": (0.4, 0.1),
    "other_date": (-3.2, 1.0),
    "series": (-1.6, 1.0),
    "other_asking": (-1.0, 1.0),
    "other_negation": (-3.0, 1.0),
    "other_order": (-3.0, 1.0),
    "other_words": (0.0, 0.2),  # bodies say more
    "cites": (-0.8, 0.5),
    "same_asker": (-0.8, 0.5),
}
# Without bodies the cosine decides nearly alone, as paraphrases share no words, but not between words that are alike.
_OF_TITLES = {"log_odds": (0.1, 0.05), "other_words": (-1.0, 1.0)}
_REREAD_SPREADS = 0.7, 0.2, 0.1  # of an archive's intercept, of the log of its slope, and of each coefficient
_MARGIN = 1.5  # of the densest site: others may be denser, and hold no more duplicates
_TOPS = (20, 50, 100)
_BINS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


class Site(NamedTuple):
    """What is known of a site's pairs."""

    name: str
    features: np.ndarray  # (n, F)
    same: np.ndarray  # bool
    is_judged: np.ndarray  # bool
    is_held_out: np.ndarray  # bool
    cosines: np.ndarray  # the reranker's
    is_far: np.ndarray  # bool: not judged, far below, and counts as different
    is_linked: np.ndarray  # bool
    is_listed: np.ndarray  # bool: the encoder found it; the first model learns from such pairs
    density: Density


def read_site(uri: str) -> Site:
    """The pairs of a run that has read every question, with the readings on its site."""
    run = open_run(uri)
    [name] = run.metrics["sites"]
    work = storage.join(run.uri, "work")
    listed, title_context = (_table(storage.join(work, *path), schema) for path, schema in _EVIDENCE)
    compared = pa.concat_tables([listed, _table(storage.join(work, "rerank", "found_compared"), COMPARED)])
    scored = _table(storage.join(work, "rerank", "scored"), SCORED)  # in the order of both
    calibration = storage.read_json(storage.join(work, "calibration", "calibration.json"))
    features = features_of(compared, title_context, np.array(calibration["reference"]), run.settings.neighbours.k)
    pairs, links = pairs_in(compared), run.manifest["inputs"]["links"]
    known = known_duplicates(links, Sites([name])) if links else np.zeros((0, 2), np.int64)
    cosines = _aligned(pairs, scored)
    density = Density(**storage.read_json(storage.join(work, "rerank", "density.json")))
    files = [_VERDICTS / f"rivals/{name}.tsv", _VERDICTS / "worklists-2026-11-27.tsv", _VERDICTS / f"{name}.tsv"]
    usable = ~are_pairs_among(known, pairs), np.arange(len(pairs)) < len(listed)
    return _site(name, pairs & MAXIMUM_ID, features, cosines, usable, density, files, _FAR_PAIRS)


_EVIDENCE = ((("pairs", "compared"), COMPARED), (("pairs", "around"), TITLE_CONTEXT))


def _table(folder: str, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([storage.read_table(file.uri, schema) for file in storage.list_files(folder, ".parquet")])


def _aligned(pairs: np.ndarray, scored: pa.Table) -> np.ndarray:
    """The cosines of pairs, which `scored` has in another order."""
    rows = pair_indices(pairs_in(scored), pairs)
    return scored["reranker"].to_numpy()[rows].astype(np.float64)


def read_titles(dump: Path) -> Site:
    """The pairs of a dump's titles, with the readings on them."""
    ids, titles = zip(*sorted(titles_of(dump).items()), strict=True)
    reranker = default_reranker()
    assert reranker is not None
    compared = compare(list(titles), None, None, "english", 10, reranker)
    assert compared.read is not None
    evidence, pairs = compared.evidence, pairs_in(compared.evidence)
    features = features_of(evidence, compared.title_context, compared.scale.reference, compared.scale.k)
    cosines = cosines_of(compared.read, pairs).astype(np.float64)
    read = np.isfinite(cosines)
    keys = np.array(ids)[pairs]
    is_open = read & (evidence["same_asking"].to_numpy() == 0)
    files = [_VERDICTS / "titles" / f"{dump.stem}.tsv"]
    is_listed = np.stack([evidence[f"rank_{side}"].to_numpy() for side in ("left", "right")]).max(axis=0) > 0
    assert compared.density is not None
    usable = is_open, is_listed
    return _site(dump.stem, keys, features, cosines, usable, compared.density, files, _FAR_TITLES)


def _site(
    name: str,
    keys: np.ndarray,
    features: np.ndarray,
    cosines: np.ndarray,
    usable_and_listed: tuple[np.ndarray, np.ndarray],
    density: Density,
    files: list[Path],
    far_pairs: int,
) -> Site:
    """The site's pairs; those that are not `usable` are neither judged nor far."""
    usable, is_listed = usable_and_listed
    known, own = (_readings(name, some) for some in (files, files[-1:]))  # no model learns from other files
    said = np.array([known.get(key, "") for key in map(tuple, keys.tolist())])
    is_own = np.array([key in own for key in map(tuple, keys.tolist())])
    hashes = np.array([xxhash.xxh3_64_intdigest(f"{name} {left} {right}".encode()) for left, right in keys.tolist()])
    is_judged = np.isin(said, ("same", "different")) & usable
    unlikely = read_prior().model.probabilities(features) < FAR
    far = np.flatnonzero((said == "") & usable & unlikely & (cosines < _FAR_COSINE))
    is_far = np.zeros(len(said), bool)
    is_far[far[np.argsort(hashes[far])][:far_pairs]] = True
    is_held_out = (hashes % 3 == 0) | ~is_own
    return Site(name, features, said == "same", is_judged, is_held_out, cosines, is_far, ~usable, is_listed, density)


def _readings(name: str, files: list[Path]) -> dict[tuple[int, int], str]:
    verdicts, _ = last_verdicts([str(file) for file in files if file.exists()])
    return {verdict[1:4:2]: verdict.verdict for verdict in verdicts if verdict.site_left == name}


def learn(sites: list[Site], centres: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The coefficients that sites share, (F + 1,)."""
    design = np.concatenate([designed(site.features, centres, scales) for site in sites])
    labels = np.concatenate([site.same for site in sites])
    owners = np.repeat(np.eye(len(sites)), [len(site.same) for site in sites], axis=0)
    expected = np.array([_FLAGS.get(name, (0.0, _SPREAD)) for name in FEATURES])
    bounds: list[Any] = [(None, 0.0) if name in _LOWERING else (0.0, None) for name in FEATURES]
    return _minimize(design, labels, owners, expected, bounds)


def learn_reread(sites: list[Site], firsts: list[Model], expectations: dict[str, tuple[float, float]]) -> np.ndarray:
    """The coefficients of the second model; `firsts` are the first ones, learned without the site."""
    rows = [(site.is_judged & ~site.is_held_out) | site.is_far for site in sites]
    designs = [reread_design(first, *_of(site, row)) for site, first, row in zip(sites, firsts, rows, strict=True)]
    labels = np.concatenate([site.same[row] for site, row in zip(sites, rows, strict=True)])
    owners = np.repeat(np.eye(len(sites)), [row.sum() for row in rows], axis=0)
    expected = np.array([expectations[name] for name in REREAD])
    bounds: list[Any] = [(0.0, None)] * 2 + [(None, 0.0)] * (len(REREAD) - 2)
    return _minimize(np.concatenate(designs), labels, owners, expected, bounds)


def _minimize(
    design: np.ndarray, labels: np.ndarray, owners: np.ndarray, priors: np.ndarray, bounds: list[Any]
) -> np.ndarray:
    """The likeliest coefficients and intercept, (C + 1,), beside an offset for each site.

    `design` (n, C + 1) has a column of ones last, `owners` (n, sites) tells a row's site, `priors` (C, 2) are the
    expected values of the coefficients and their spreads.
    """
    (expected, spreads), width = priors.T, design.shape[1]

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        shared, own = parameters[:width], parameters[width:]
        logits, far = design @ shared + owners @ own, (shared[:-1] - expected) / spreads
        value = float((np.logaddexp(0.0, logits) - labels * logits).sum() + 0.5 * (far @ far))
        value += 0.5 * float(own @ own) / _SITE_SPREAD**2
        off = expit(logits) - labels
        past = np.concatenate([far / spreads, [0.0], own / _SITE_SPREAD**2])
        return value, np.concatenate([design.T @ off, owners.T @ off]) + past

    sites = owners.shape[1]
    start = np.concatenate([expected, [-4.0], np.zeros(sites)])
    limits = bounds + [(None, None)] * (1 + sites)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 5000}).x
    return np.array(found[:width])


def _of(site: Site, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return site.features[rows], site.cosines[rows]


def learned_from(sites: list[Site]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centres, scales and coefficients, without what is held out."""
    rows = [((site.is_judged & ~site.is_held_out) | site.is_far) & site.is_listed for site in sites]
    sites = [
        Site(site.name, *(column[row] for column in site[1:-1]), site.density)
        for site, row in zip(sites, rows, strict=True)
    ]
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


def tops_of(site: Site, p: np.ndarray, order_by: str) -> dict[str, Any]:
    """How many of the first pairs without a link are right, expected, and not read; printed too."""
    order = np.argsort(np.where(site.is_linked, -1.0, p), kind="stable")[::-1]
    rows = {}
    for top in _TOPS:
        first = order[:top]
        judged = first[site.is_judged[first]]
        rows[str(top)] = {
            "right": int(site.same[judged].sum()),
            "expected": round(float(p[first].sum()), 1),
            "not judged": top - len(judged),
            "expected of judged": round(float(p[judged].sum()), 1),
        }
    print(json.dumps({"site": site.name, "by": order_by, "first": rows}))
    return rows


def error_of(tops: list[dict[str, Any]]) -> float:
    """The spread of ln (right / expected) among the judged of the first fifty pairs of sites."""
    errors = [np.log((top["50"]["right"] + 1) / (top["50"]["expected of judged"] + 1)) for top in tops]
    return round(float(np.sqrt(np.mean(np.square(errors)))), 3)


def density_figures(sites: list[Site], probabilities: list[np.ndarray]) -> dict[str, float]:
    """Return `tail` and `share` of a prior: no site's density exceeds what they expect."""
    shares, ratios = [], []
    for site, p in zip(sites, probabilities, strict=True):
        alike = np.flatnonzero(site.cosines >= ALIKE)
        apart = are_apart(site.features[alike])
        ratios.append(site.density.alike * (1 - apart.mean()) / site.density.related)
        shares.append(float(p[alike[~apart]].mean()))
        print(json.dumps({"site": site.name, "alike per related": ratios[-1], "share": shares[-1]}))
    share = float(np.mean(shares))
    return {"tail": round(_MARGIN * (1 - share) * max(ratios), 4), "share": round(share, 3)}


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
    expectations = _REREAD | _OF_TITLES if arguments.titles else _REREAD
    firsts, logits, reread = [], [], []
    for index, site in enumerate(sites):
        centres, scales, coefficients = learned_from(sites[:index] + sites[index + 1 :])
        firsts.append(Model(centres, scales, coefficients, 0.0))
        logits.append(firsts[-1].log_odds(site.features))
    rows = compared(sites, [expit(some) for some in logits], "")
    for index, site in enumerate(sites):
        others = slice(index), slice(index + 1, None)
        given = ([column for some in others for column in every[some]] for every in (sites, firsts))
        model = learn_reread(*given, expectations)
        reread.append(expit(reread_design(firsts[index], site.features, site.cosines) @ model))
    rows += compared(sites, reread, ", read")
    bm25 = [site.features[:, FEATURES.index("both_ways")] for site in sites]
    orders = {"BM25": bm25, "the cosine": [site.cosines for site in sites]}
    orders |= {"without a reranker": [expit(some) for some in logits], "with it": reread}
    before, tops = [[tops_of(*row, order) for row in zip(sites, orders[order], strict=True)] for order in orders][-2:]
    centres, scales, coefficients = learned_from(sites)
    second = learn_reread(sites, firsts, expectations)
    for name, value in zip((*FEATURES, "intercept", *REREAD, "intercept"), [*coefficients, *second], strict=True):
        print(f"{name:16} {value:8.3f}")
    cosines = np.concatenate([site.cosines[np.isfinite(site.cosines)] for site in sites])
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
            "error": error_of(before),
            "reranker": {
                "weights": WEIGHTS,
                "features": list(REREAD),
                "coefficients": second.round(4).tolist(),
                "intercept_spread": _REREAD_SPREADS[0],
                "slope_spread": _REREAD_SPREADS[1],
                "coefficient_spread": _REREAD_SPREADS[2],
                "mean": round(float(cosines.mean()), 3),
                "spread": round(float(cosines.std()), 3),
                **density_figures(sites, reread),
                "error": error_of(tops),
            },
            "sites": [site.name for site in sites],
            "first_pairs": {site.name: top for site, top in zip(sites, tops, strict=True)},
            "left_out": rows,
        }
        Path(arguments.output).write_text(json.dumps(prior, indent=1) + "\n")


if __name__ == "__main__":
    main()
