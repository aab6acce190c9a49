"""pairs, clusters → the worklist: the likeliest pairs between different clusters, for people to judge."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage, tables
from dupq.clusters.components import clusters_in, components
from dupq.clusters.decision import Titled, Wording, likeliest, unlinked
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.job.run import Run
from dupq.job.table import Shards, Table, Whole
from dupq.links import links_table
from dupq.runs.reader import TableRow, ends_of, link
from dupq.stages.clusters import CRITERIA, Clustered, Decided, make_clusters
from dupq.stages.partition import Known
from dupq.text.keys import Sites, are_pairs_among, distinct, pairs_in, rows_among

_CHOSEN = pa.schema([*tables.KEY_PAIRS, *tables.PAIRS])
TITLED = ("question_id", "title", "tags")  # columns of questions
TITLES = pa.schema([tables.TEXTS.field("key"), *(tables.QUESTIONS.field(name) for name in ("title", "tags"))])


@dataclass(frozen=True)
class Work:
    """What a worklist depends on, beside the run's tables."""

    pairs: int  # at most
    questions: int  # of the archive
    k: int  # neighbours of each question
    language: str
    linked_share: float  # share of the duplicates that is linked; 0 if no links tell it


def cluster(
    run: Run, decided: Decided, known: Known, texts: Table, questions: Shards, rarities: Table, work: Work
) -> tuple[Clustered, Table]:
    """Make the tables of clusters, and the worklist of the likeliest other pairs (WORKLIST) with its sheet.

    A sheet that exists is left alone: it has the same pairs, and perhaps verdicts.
    """
    bare, titled = (Shards(questions.shards, questions.sites, names) for names in (CRITERIA, TITLED))  # without bodies
    clustered = make_clusters(run, decided, known, texts, bare)
    owners = Whole(clustered.members.only("key", "cluster"))
    settled = Whole(run.map("settled", settled_by, known.links, owners, known.sites.names, into=tables.LABELS))
    filters = owners, settled, known.sites, known.judged, work.pairs
    of_partitions = run.map("likeliest", likeliest_of, clustered.pairs, *filters, into=_CHOSEN)
    chosen = Whole(run.map("chosen", likeliest_of, Whole(of_partitions), *filters, into=_CHOSEN))
    titles = run.map("titles", titles_of, titled, chosen, into=TITLES)
    inputs = chosen, Whole(titles), Whole(rarities), work
    table = run.map("worklist", worklist_of, *inputs, into=tables.WORKLIST, publish=True)
    sheet = storage.join(run.uri, "worklist.tsv")
    if not storage.exists(sheet):
        storage.write_bytes(sheet, _sheet(table.read(0).to_pylist()).encode())
    return clustered, table


def settled_by(links: str | None, members: pa.Table, site_names: list[str]) -> pa.Table:
    """Return the clusters that known links connect, each with the smallest of them (LABELS)."""
    clusters, smallest = components(clusters_in(pairs_in(links_table(links, site_names)), members))
    return pa.table([clusters, smallest], schema=tables.LABELS)


def likeliest_of(
    table: pa.Table, members: pa.Table, settled: pa.Table, sites: Sites, judged: Judged, most: int
) -> pa.Table:
    """Return the `most` likeliest rows of PAIRS that are neither joined nor settled by people, with their keys."""
    table = table.filter(pc.invert(table["joined"])).select(tables.PAIRS.names)
    pairs = sites.pack_pairs(table, "pairs")
    clusters = clusters_in(pairs, members)
    judged_clusters = clusters_in(judged.pairs, members)  # whatever the verdict
    linked = clusters_in(clusters, settled)
    is_judged = are_pairs_among(np.sort(judged_clusters, axis=1), np.sort(clusters, axis=1))
    rows = np.flatnonzero((linked[:, 0] != linked[:, 1]) & ~is_judged)
    rows = rows[likeliest(pairs[rows], table["probability"].to_numpy()[rows], clusters[rows], most)]
    return pa.table([*pairs[rows].T, *table.take(pa.array(rows)).columns], schema=_CHOSEN)


def titles_of(questions: Iterator[pa.RecordBatch], pairs: pa.Table) -> pa.Table:
    """Return the titles and tags of the questions of a shard that are in `pairs` (KEY_PAIRS)."""
    return rows_among(questions, distinct(pairs_in(pairs)), TITLES)


def worklist_of(pairs: pa.Table, titles: pa.Table, rarities: pa.Table, work: Work) -> pa.Table:
    """Return rows of PAIRS with titles, links and the evidence in words (WORKLIST)."""
    titled = {row["key"]: Titled(row["title"], row["tags"]) for row in titles.to_pylist()}
    wording = Wording(work.language, rarities["rarity"].to_numpy(), work.questions, work.k)
    p = unlinked(pairs["probability"].to_numpy(), work.linked_share)
    expected, keys = np.cumsum(p).tolist(), pairs_in(pairs).tolist()
    rows: list[TableRow] = []
    for index, pair in enumerate(pairs.select(tables.PAIRS.names).to_pylist()):
        left, right = (titled.get(key, Titled("", ())) for key in keys[index])
        row = {**pair, "evidence": wording.evidence(pair, left, right), "verdict": ""}
        for side, key, question in zip(("left", "right"), keys[index], ends_of(pair), strict=True):
            row[f"title_{side}"] = titled[key].title if key in titled else None
            row[f"link_{side}"] = link(question)
        rows.append({**row, "rank": index + 1, "probability": p[index], "expected_right": expected[index]})
    return pa.Table.from_pylist(rows, schema=tables.WORKLIST)


def _sheet(rows: list[TableRow]) -> str:
    verdicts = [Verdict(**{name: row[name] for name in Verdict._fields}) for row in rows]
    names = [name for name in tables.WORKLIST.names if name not in Verdict._fields]
    columns = {name: [_cell(row[name]) for row in rows] for name in names}
    return format_verdicts(verdicts, columns)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else str(value)
