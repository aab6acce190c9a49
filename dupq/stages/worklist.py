"""pairs, clusters → the worklist: the likeliest pairs between different clusters, for people to judge.

    settled     which clusters known links connect
    likeliest   the likeliest pairs of a partition between different clusters; of all partitions: chosen
    titles      titles and tags of their questions
    worklist    the table; and worklist.tsv, to be filled in

Where people linked or judged a pair, no pair of the same two clusters is listed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NewType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import kinds
from dupq.clusters.components import clusters_in, components
from dupq.clusters.decision import Titled, Wording, likeliest, unlinked
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.job.run import Run
from dupq.job.stage import stage
from dupq.job.step import step
from dupq.job.table import Broadcast, Shards, Table
from dupq.judging.prompt import in_words
from dupq.kinds import JSON, Schema, columns, streamed
from dupq.runs.reader import TableRow, ends_of, link
from dupq.stages.clusters import ClusterTables, PartitionResult, make_clusters
from dupq.stages.partition import RunKnowledge
from dupq.tables import JUDGE_ANSWERS, KEY_PAIRS, KEYS, LABELS, PAIRS, QUESTIONS, RARITIES, WORKLIST
from dupq.text.keys import Sites, are_pairs_among, distinct, pairs_in, rows_among

ChosenPair = NewType("ChosenPair", kinds.KeyPair)
TitledQuestion = NewType("TitledQuestion", kinds.Key)

_CHOSEN: Schema[ChosenPair] = pa.schema([*KEY_PAIRS, *PAIRS])
_TITLED = columns(QUESTIONS, "title", "tags", "own_id", "url")
TITLES: Schema[TitledQuestion] = pa.schema([*KEYS, *_TITLED])


@dataclass(frozen=True)
class WorklistOptions:
    """What a worklist depends on, in addition to the run's tables."""

    pairs: int  # at most
    questions: int  # of the archive
    k: int  # neighbours of each question
    language: str
    linked_share: float  # share of the duplicates that is linked; 0 if no links tell it


@stage("clusters", version=9)
def cluster(
    run: Run,
    decided: PartitionResult,
    known: RunKnowledge,
    texts: Table[kinds.QuestionText],
    questions: Shards[kinds.Question],
    rarities: Table[kinds.Rarity],
    options: WorklistOptions,
    answers: Table[kinds.Answered] | None = None,
) -> tuple[ClusterTables, Table[kinds.Work]]:
    """Make the tables of clusters, and the worklist of the likeliest other pairs with its sheet.

    `answers` are a judge's (JUDGE_ANSWERS).
    """
    made = make_clusters(run, decided, known, texts, questions)
    owners, most = Broadcast(made.members), options.pairs
    settled = Broadcast(run.map("settled", settled_by)(known.pairs, owners))
    some = run.map("likeliest", likeliest_of)(made.pairs, owners, settled, known.sites, known.judged, most)
    chosen = Broadcast(run.map("chosen", likeliest_of_all)(Broadcast(some), owners, most))
    titles = Broadcast(run.map("titles", titles_of)(questions, chosen))
    judged = Broadcast(run.table("answers", JUDGE_ANSWERS, 0) if answers is None else answers)
    worklist = run.map("worklist", worklist_of, publish=True)(chosen, titles, Broadcast(rarities), judged, options)
    run.write("worklist.tsv", sheet_of, publish=True)(worklist)
    return made, worklist


@step(KEY_PAIRS, LABELS, makes=LABELS)
def settled_by(links: pa.Table, members: pa.Table) -> pa.Table:
    """Return the clusters that known links connect, each with the smallest of them (LABELS)."""
    return pa.table([*components(clusters_in(pairs_in(links), members))], schema=LABELS)


@step(PAIRS, LABELS, LABELS, makes=_CHOSEN)
def likeliest_of(
    table: pa.Table, members: pa.Table, settled: pa.Table, sites: Sites, judged: Judged, most: int
) -> pa.Table:
    """Return the `most` likeliest rows of PAIRS that are neither joined nor settled by people, with their keys."""
    table = table.filter(pc.invert(table["joined"]))
    pairs = sites.pack_pairs(table, "pairs")
    clusters = clusters_in(pairs, members)
    judged_clusters = clusters_in(judged.pairs, members)  # whatever the verdict
    linked = clusters_in(clusters, settled)
    is_judged = are_pairs_among(np.sort(judged_clusters, axis=1), np.sort(clusters, axis=1))
    rows = np.flatnonzero((linked[:, 0] != linked[:, 1]) & ~is_judged)
    rows = rows[likeliest(pairs[rows], table["probability"].to_numpy()[rows], clusters[rows], most)]
    return pa.table([*pairs[rows].T, *table.take(pa.array(rows)).columns], schema=_CHOSEN)


@step(_CHOSEN, LABELS, makes=_CHOSEN)
def likeliest_of_all(some: pa.Table, members: pa.Table, most: int) -> pa.Table:
    """Return the `most` likeliest pairs of all partitions."""
    pairs = pairs_in(some)
    return some.take(pa.array(likeliest(pairs, some["probability"].to_numpy(), clusters_in(pairs, members), most)))


@step(streamed(_TITLED), KEY_PAIRS, makes=TITLES)
def titles_of(questions: Iterator[pa.RecordBatch], pairs: pa.Table) -> pa.Table:
    """Return the titles and tags of the questions of a shard that are in `pairs`."""
    return rows_among(questions, distinct(pairs_in(pairs)), TITLES)


@step(_CHOSEN, TITLES, RARITIES, JUDGE_ANSWERS, makes=WORKLIST)
def worklist_of(
    pairs: pa.Table, titles: pa.Table, rarities: pa.Table, answers: pa.Table, options: WorklistOptions
) -> pa.Table:
    """Return the pairs with titles, links and the evidence in words (WORKLIST)."""
    judged = {(row["left"], row["right"]): row for row in answers.to_pylist()}
    titled = {row["key"]: row for row in titles.to_pylist()}
    wording = Wording(options.language, rarities["rarity"].to_numpy(), options.questions, options.k)
    p = unlinked(pairs["probability"].to_numpy(), options.linked_share)
    expected, keys = np.cumsum(p).tolist(), pairs_in(pairs).tolist()
    rows: list[TableRow] = []
    for index, pair in enumerate(pairs.select(PAIRS.names).to_pylist()):
        sides = [titled.get(key, {}) for key in keys[index]]
        left, right = (Titled(side.get("title", ""), side.get("tags", ())) for side in sides)
        answer = judged.get(tuple(keys[index]))
        evidence = [in_words(answer)] if answer and answer["same"] is not None else []
        row = {**pair, "evidence": "; ".join([*evidence, wording.evidence(pair, left, right)]), "verdict": ""}
        for name, side, question in zip(("left", "right"), sides, ends_of(pair), strict=True):
            row |= {f"title_{name}": side.get("title"), f"own_id_{name}": side.get("own_id")}
            row[f"link_{name}"] = link(question, side.get("url"))
        rows.append({**row, "rank": index + 1, "probability": p[index], "expected_right": expected[index]})
    return pa.Table.from_pylist(rows, schema=WORKLIST)


@step(WORKLIST, makes=JSON)
def sheet_of(worklist: pa.Table) -> bytes:
    """Return the sheet that people fill in."""
    rows = worklist.to_pylist()
    verdicts = [Verdict(**{name: row[name] for name in Verdict._fields}) for row in rows]
    names = [name for name in WORKLIST.names if name not in Verdict._fields]
    return format_verdicts(verdicts, {name: [_cell(row[name]) for row in rows] for name in names}).encode()


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else str(value)
