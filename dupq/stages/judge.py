"""scored pairs, questions → the pairs with the probabilities that a language model's answers give.

    likeliest, asked   each site's likeliest pairs that are not certain already, and those that people judged
    texts              what the judge reads of their questions
    plan               how many answers are missing, and what they will cost
    answers            what it answered, about these and about control pairs; one task, with a few connections
    trust              what answers are worth, by site and answering model (judging/trust.py)
    judged             all pairs again, with the new probabilities
    judge              the table that people read

Control pairs are a question and itself, and two questions of a site that are in no asked pair together. They cost a
twenty-fifth more. Answers are kept next to the runs, so that a later run asks only about new pairs.

Memory: the texts of asked questions, 1 kB each, and their pairs.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NewType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds, storage, tables
from dupq.errors import GateError
from dupq.evaluation.sampling import Judged, verdicts_of
from dupq.job.records import Measures
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import StepResult, step
from dupq.job.table import Broadcast, Shards, Table
from dupq.judging.client import Asking, Endpoint, ask, key_from_environment, known_answers
from dupq.judging.prompt import Answer, Asked, asked
from dupq.judging.trust import YES, Trust, fit_trust, least_share, to_ask, with_answers, with_answers_of
from dupq.kinds import JSON, Schema, columns, streamed
from dupq.settings.sections import JudgeSettings
from dupq.text.keys import ID_BITS, Sites, distinct, pair_indices, pairs_in, rows_among

AskedText = NewType("AskedText", kinds.Key)

ANSWERS = "judge-answers"  # a folder next to the runs
LIKELY, VERDICT, COPY, DIFFERENT = "likely", "verdict", "copy", "different"
_ASKED_FOR = [LIKELY, VERDICT]  # the others are control pairs
_CONTROLS = 10  # of each kind and site, at most, and at most one per this number of pairs
_OF_QUESTIONS = columns(tables.QUESTIONS, "title", "body_html")
_SOURCE = pa.schema([*tables.KEYS, *_OF_QUESTIONS])
_ASKED = columns(tables.JUDGE_ANSWERS, "left", "right", "probability", "kind")
_TEXTS: Schema[AskedText] = pa.schema([*tables.KEYS, ("title", pa.string()), ("text", pa.string())])
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Judging:
    """Who is asked about which pairs."""

    endpoint: Endpoint
    pairs: int  # of each site, at most
    code: str  # the setting text.code
    answers: str  # the folder next to the runs in which answers are kept (URI)
    required: bool  # whether a judge that fails ends the run


class JudgedPairs(NamedTuple):
    """The pairs with new probabilities where the judge gave an answer, its answers, and what came of asking."""

    scored: Table[kinds.Scored]
    answers: Table[kinds.Answered]
    summary: Measures


@stage("judge", version=1)
def judge(
    run: Run,
    scored: Table[kinds.Scored],
    questions: Shards[kinds.Question],
    sites: Sites,
    people: Judged,
    judging: Judging,
) -> JudgedPairs:
    """Ask a judge about the likeliest pairs, and weigh its answers with all that was known before."""
    some = run.map("likeliest", likeliest_pairs)(scored, people, judging.pairs)
    chosen = Broadcast(run.map("asked", asked_pairs)(Broadcast(some), judging.pairs))
    texts = Broadcast(run.gather("texts", texts_of)(questions, chosen, judging.code))
    plan = run.record("plan", plan_of)(chosen, texts, judging)
    _log.info(
        f"judge: {judging.endpoint.model} at {judging.endpoint.url} is asked about {plan['missing']:,} pairs: about "
        f"{plan['tokens']:,} tokens, ${plan['dollars']:.2f}; {plan['known']:,} answers are known"
    )
    answers = run.table("answers", tables.JUDGE_ANSWERS)
    ledger = storage.join(run.folder, "spent.json")
    summary = run.record("asking", answers_of, answers)(chosen, texts, judging, ledger)
    for line in summary["lines"]:
        _log.warning(f"judge: {line}")
    trust = run.record("trust", trust_of)(Broadcast(answers), people)
    judged = run.map("judged", judged_pairs)(scored, Broadcast(answers), trust)
    run.map("judge", judge_table, publish=True)(Broadcast(answers), sites, trust)
    run.report.rows_in, run.report.rows_out = summary["pairs"], summary["answered"]
    is_used = any(not fitted["reason"] for fitted in trust["trust"].values())
    return JudgedPairs(judged, answers, {**summary, **trust, "is_used": is_used})


def judging_of(settings: JudgeSettings, code: str, run: str, required: bool) -> Judging:
    """Return who is asked, for the run at `run` (URI)."""
    shared = ("url", "model", "max_tokens", "connections", "price_in", "price_out", "dollars", "tokens")
    endpoint = Endpoint(**{name: getattr(settings, name) for name in shared}, key=key_from_environment())
    return Judging(endpoint, settings.pairs, code, storage.join(storage.parent(run), ANSWERS), required)


@step(columns(tables.SCORED, "left", "right", "probability"), makes=_ASKED)
def likeliest_pairs(scored: pa.Table, people: Judged, most: int) -> pa.Table:
    """Return the `most` likeliest pairs of each site that are not certain, and all that people judged (_ASKED)."""
    keys, p, is_judged = pairs_in(scored), scored["probability"].to_numpy(), verdicts_of(scored, people)[0] >= 0
    rows = to_ask(keys, p, is_judged, most)
    return pa.table([*keys[rows].T, p[rows], np.where(is_judged[rows], VERDICT, LIKELY)], schema=_ASKED)


@step(_ASKED, makes=_ASKED)
def asked_pairs(some: pa.Table, most: int) -> pa.Table:
    """Return the pairs that the judge is asked about, of all partitions, in the order of asking (_ASKED)."""
    is_judged = some["kind"].to_numpy() == VERDICT
    return some.take(pa.array(to_ask(pairs_in(some), some["probability"].to_numpy(), is_judged, most)))


@step(streamed(_OF_QUESTIONS), columns(_ASKED, "left", "right"), makes=_TEXTS)
def texts_of(questions: Iterator[pa.RecordBatch], pairs: pa.Table, code: str) -> pa.Table:
    """Return what the judge reads of the questions of a shard that are in `pairs`."""
    rows = rows_among(questions, distinct(pairs_in(pairs)), _SOURCE)
    read = [asked(*texts, code) for texts in zip(rows["title"].to_pylist(), rows["body_html"].to_pylist(), strict=True)]
    return pa.table([rows["key"], [text.title for text in read], [text.text for text in read]], schema=_TEXTS)


@step(_ASKED, _TEXTS, makes=JSON)
def plan_of(pairs: pa.Table, texts: pa.Table, judging: Judging) -> Measures:
    """Return how many pairs the judge will be asked about, and about how many tokens and dollars that takes."""
    _, read, answers = _known(pairs, texts, judging)
    missing = [pair for pair, answer in zip(read, answers, strict=True) if answer is None]
    estimate = judging.endpoint.estimate(missing)
    counts = {"missing": len(missing), "known": len(read) - len(missing)}
    return {**counts, "tokens": sum(estimate), "dollars": judging.endpoint.cost(estimate)}


@step(_ASKED, _TEXTS, makes=JSON, second=tables.JUDGE_ANSWERS)
def answers_of(pairs: pa.Table, texts: pa.Table, judging: Judging, ledger: str) -> StepResult[Measures]:
    """Ask about the pairs and about control pairs; the second table has the answers.

    `ledger` is the file with what the run has spent. Raises GateError if the judge fails and is required.
    """
    pairs, read, answers = _known(pairs, texts, judging)
    missing = [row for row, answer in enumerate(answers) if answer is None]
    asking = ask([read[row] for row in missing], judging.endpoint, judging.answers, ledger)
    for row, answer in zip(missing, asking.answers, strict=True):
        answers[row] = answer
    summary = _summary(pairs, answers, len(missing), asking, judging.endpoint)
    if judging.required and (asking.trouble or summary["usable"] == 0 < len(pairs)):
        reason = asking.trouble or "no answer was usable"
        raise GateError(
            f"--judge-required: {reason}; the answers so far are kept; repeat the command to ask for the rest"
        )
    return StepResult(summary, {"rows_out": summary["answered"]}, _answers_table(pairs, answers))


def _known(
    pairs: pa.Table, texts: pa.Table, judging: Judging
) -> tuple[pa.Table, list[tuple[Asked, Asked]], list[Answer | None]]:
    """Return control pairs and pairs (_ASKED), what a judge reads of them, and the answers that are known."""
    pairs = pa.concat_tables([control_pairs(pairs), pairs])
    by_key = {row["key"]: Asked(row["title"], row["text"]) for row in texts.to_pylist()}
    read = [(by_key[left], by_key[right]) for left, right in pairs_in(pairs).tolist()]
    return pairs, read, known_answers(read, judging.endpoint.model, judging.answers)


def control_pairs(pairs: pa.Table) -> pa.Table:
    """Return control pairs of each site (_ASKED): questions and themselves, and two that no asked pair has together."""
    keys = pairs_in(pairs)
    rows: list[tuple[int, int, float, str]] = []
    for site in np.unique(keys[:, 0] >> ID_BITS):
        own = keys[(keys >> ID_BITS == site).all(axis=1)]
        count, questions = min(_CONTROLS, len(own) // _CONTROLS), distinct(own)
        if not count:
            continue
        rows_of = np.linspace(0, len(questions) - 1, count).astype(int)
        spread, others = questions[rows_of], questions[(rows_of + len(questions) // 2) % len(questions)]
        rows += [(key, key, 1.0, COPY) for key in spread.tolist()]
        two = np.sort(np.stack([spread, others], axis=1), axis=1)
        apart = (pair_indices(np.unique(own, axis=0), two) < 0) & (two[:, 0] != two[:, 1])
        rows += [(left, right, 0.0, DIFFERENT) for left, right in two[apart].tolist()]
    if not rows:
        return _ASKED.empty_table()
    return pa.table([*map(pa.array, zip(*rows, strict=True))], names=_ASKED.names).cast(_ASKED)


def _summary(
    pairs: pa.Table, answers: Sequence[Answer | None], missing: int, asking: Asking, endpoint: Endpoint
) -> Measures:
    """Return what came of asking, as JSON, with lines for people about what went wrong."""
    given = [answer for answer in answers if answer is not None]
    models = sorted({answer.model for answer in given if answer.model})
    problems = [answer.problem for answer in given if answer.same is None]
    lines = [asking.trouble] if asking.trouble else []
    odd = sum(answer.odd for answer in given)
    if odd:
        lines.append(f"{odd} answers are not used: a text speaks to the judge, or cannot be judged")
    if asking.over_budget:
        lines.append("its budget is used up; dupq judge --run asks about the rest")
    lines += [f"{problems.count(problem)} times no answer: {problem}" for problem in sorted(set(problems))]
    if models and models != [endpoint.model]:
        lines.append(f"asked as {endpoint.model}, {', '.join(models)} answered, and the answers count as its own")
    return {
        "model": endpoint.model,
        "answered_by": models,
        "url": endpoint.url,
        "pairs": len(pairs),
        "asked": missing,
        "answered": len(given),
        "usable": len(given) - len(problems),
        "yes": sum(answer.same is not None and answer.same >= YES for answer in given),
        "odd": odd,
        "tokens": sum(asking.spent),
        "dollars": endpoint.cost(asking.spent),
        "lines": lines,
    }


def _answers_table(pairs: pa.Table, answers: Sequence[Answer | None]) -> pa.Table:
    rows = [row for row, answer in enumerate(answers) if answer is not None]
    kept = [answer for answer in answers if answer is not None]
    names = tables.JUDGE_ANSWERS.names[len(_ASKED) :]
    columns_of = [
        pa.array([getattr(answer, name) for answer in kept], tables.JUDGE_ANSWERS.field(name).type) for name in names
    ]
    return pa.table([*pairs.take(pa.array(rows, pa.int64())).columns, *columns_of], schema=tables.JUDGE_ANSWERS)


@step(tables.JUDGE_ANSWERS, makes=JSON)
def trust_of(answers: pa.Table, people: Judged) -> Measures:
    """Return what answers are worth, by site and answering model, and how often people agree (JSON)."""
    same, groups, verdicts = usable(answers), _groups(answers), verdicts_of(answers, people)[0]
    labels = np.where(verdicts >= 0, verdicts, np.nan)  # 1 the same, 0 different
    p, kinds_of = answers["probability"].to_numpy().astype(np.float64), answers["kind"].to_numpy(zero_copy_only=False)
    fitted: Measures = {}
    for group in np.unique(groups).tolist():
        rows, *controls = (
            np.flatnonzero((groups == group) & np.isin(kinds_of, some)) for some in (_ASKED_FOR, [COPY], [DIFFERENT])
        )
        fitted[group] = fit_trust(same[rows], p[rows], labels[rows], *(same[own] for own in controls))._asdict()
    known = np.isfinite(labels) & np.isfinite(same)
    said_yes = same[known] >= YES
    yes, right = int(said_yes.sum()), int((labels[known][said_yes] == 1).sum())
    agree = int((said_yes == (labels[known] == 1)).sum())
    people_say = {"pairs": int(known.sum()), "agree": agree, "yes": yes, "right": right}
    return {"trust": fitted, "people": {**people_say, "least_right": least_share(right, yes)}}


def usable(answers: pa.Table) -> np.ndarray:
    """Return `same` of rows of JUDGE_ANSWERS (float64).

    It is NaN where it tells nothing: there is no number, or a text spoke to the judge.
    """
    same = answers["same"].to_numpy().astype(np.float64)
    return np.where(answers["odd"].to_numpy(zero_copy_only=False), np.nan, same)


def _groups(answers: pa.Table) -> np.ndarray:
    """Return the site and model of each row of JUDGE_ANSWERS (str), as they are named in `trust`."""
    sites = (pairs_in(answers)[:, 0] >> ID_BITS).tolist()
    return np.array([f"{site} {model}" for site, model in zip(sites, answers["model"].to_pylist(), strict=True)], str)


def added_of(answers: pa.Table, trust: Measures) -> np.ndarray:
    """Return what each row of JUDGE_ANSWERS adds to the log-odds (float64)."""
    same, groups, added = usable(answers), _groups(answers), np.zeros(len(answers))
    for group, fitted in trust["trust"].items():
        own = groups == group
        added[own] = Trust(**fitted).added(same[own])
    return added


@step(tables.SCORED, tables.JUDGE_ANSWERS, makes=tables.SCORED)
def judged_pairs(scored: pa.Table, answers: pa.Table, trust: Measures) -> pa.Table:
    """Return SCORED with the probabilities after the judge's answers."""
    answers = answers.filter(pc.is_in(answers["kind"], pa.array(_ASKED_FOR)))
    rows = pair_indices(pairs_in(scored), pairs_in(answers))
    here = rows >= 0
    return with_answers_of(scored, rows[here], added_of(answers, trust)[here])


@step(tables.JUDGE_ANSWERS, makes=tables.JUDGEMENTS)
def judge_table(answers: pa.Table, sites: Sites, trust: Measures) -> pa.Table:
    """Return the answers as people read them (JUDGEMENTS), the likeliest pairs first."""
    p = answers["probability"].to_numpy()
    after = with_answers(p, added_of(answers, trust)).astype(np.float32)
    after = np.where(np.isin(answers["kind"].to_numpy(zero_copy_only=False), _ASKED_FOR), after, p)
    ends = (column for side in pairs_in(answers).T for column in sites.columns(side))
    rest = [answers[name] for name in ("kind", *tables.JUDGE_ANSWERS.names[len(_ASKED) :])]
    table = pa.table([*ends, answers["probability"], pa.array(after), *rest], schema=tables.JUDGEMENTS)
    return table.sort_by([("probability", "descending"), *((name, "ascending") for name in table.column_names[:4])])
