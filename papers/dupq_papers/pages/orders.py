"""What is said of the systems of a paper's table beside each other: ours, the best two, and the papers' claims."""

from collections.abc import Sequence

from dupq_papers.experiments.orders import CLAIMS, Claim
from dupq_papers.pages.lines import SEED, Measured, figure, signed
from dupq_papers.pages.randomisation import randomisation_test


def best_two(of: Measured) -> str:
    """How sure it is that the first system is over the second, by the paired test on the first measure that has one."""
    for measure, title in of.table.measures.items():
        there = [row.label for row in of.rows() if of.each(row.label, measure) is not None]
        ranked = sorted(there, key=lambda label: (-(of.value(label, measure) or 0.0), label))[:2]
        chance = _chance(of, ranked[0], ranked[1], measure) if len(ranked) == 2 else None
        if chance is not None:
            return f"{title}: {ranked[0]} over {ranked[1]}, p = {chance:.3f} (paired randomisation test)."
    return ""


def _chance(of: Measured, one: str, other: str, measure: str) -> float | None:
    """The p value of the difference of two rows; None where there are no values to be paired."""
    values, others = of.each(one, measure), of.each(other, measure)
    if values is None or others is None or not len(values) == len(others) > 0:
        return None
    return randomisation_test(values, others, SEED)


def ours_against_others(of: Measured) -> str:
    """By how much the best of our own encoders is over or under the best of the others, by the first measure."""
    measure, title = next(iter(of.table.measures.items()))
    there = {
        row.label: (row.is_ours, value) for row in of.rows() if (value := of.value(row.label, measure)) is not None
    }
    ours = {label: value for label, (is_ours, value) in there.items() if is_ours}
    others = {label: value for label, (is_ours, value) in there.items() if not is_ours}
    if not ours or not others:
        return ""
    best, other = max(ours, key=ours.__getitem__), max(others, key=others.__getitem__)
    figures = (figure(ours[best], of.table.percent), figure(others[other], of.table.percent))
    difference = signed(ours[best] - others[other], of.table.percent)
    return f"{title}: {best} {figures[0]}, the best of the others ({other}) {figures[1]}: {difference}."


def verdict(claim: Claim, of: Measured) -> tuple[str, str, str] | None:
    """Whether a claim holds, how likely chance is, and the figures; None where they were not computed.

    Chance is the paired test's p of the least of `better` and the most of `worse`.
    """
    labels = (*claim.better, *claim.worse)
    values = {label: value for label in labels if (value := of.value(label, claim.measure)) is not None}
    if len(values) < len(labels):
        return None
    least = min(claim.better, key=values.__getitem__)
    most = max(claim.worse, key=values.__getitem__)
    shown = ", ".join(f"{label} {figure(value, of.table.percent)}" for label, value in values.items())
    difference = values[least] - values[most]
    holds = difference > 0 if not claim.within else difference >= -claim.within
    chance = _chance(of, least, most, claim.measure)
    return "holds" if holds else "does not hold", "" if chance is None else f"{chance:.3f}", shown


def orders(measured: Sequence[Measured]) -> list[list[str]]:
    """The papers' claims: text, data set, whether it holds, chance, figures, and why where it does not hold."""
    return [
        [claim.text, of.data, *found, claim.why_not if found[0] == "does not hold" else ""]
        for claim in CLAIMS
        for of in measured
        if of.table.name == claim.table and (found := verdict(claim, of)) is not None
    ]
