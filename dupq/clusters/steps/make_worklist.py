"""pairs → worklist: the likeliest pairs between different clusters, for people to judge.

    settled    which clusters known links connect
    likeliest  the likeliest pairs of a partition, then of all
    titles     titles and tags of their questions
    worklist   the table; and worklist.tsv, to be filled in

What people have linked or judged is no work, nor is any other pair of the same two clusters. Memory: a partition of
pairs, and 16 bytes a question in clusters or with a known link.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.components import components, represented
from dupq.clusters.decision import Rarity, Titled, in_words, likeliest, unlinked
from dupq.clusters.steps.decide import Known
from dupq.clusters.steps.make_clusters import CRITERIA, Clustered, Decided, make_clusters
from dupq.evaluation.sampling import Judged
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.job.run import Run
from dupq.job.table import Shards, Table, Whole
from dupq.links import links_table
from dupq.runs.question_tables import pairs_in
from dupq.runs.reader import TableRow, ends_of, link
from dupq.tables import KEY_PAIRS, LABELS, PAIRS, QUESTIONS, TEXTS, WORKLIST
from dupq.text.keys import Sites, are_among, are_pairs_among, distinct
from dupq.text.languages import is_stop_word, stems
from dupq.text.questions import bucket_of

_CHOSEN = pa.schema([*KEY_PAIRS, *PAIRS])
TITLED = ("question_id", "title", "tags")  # of questions
TITLES = pa.schema([TEXTS.field("key"), *(QUESTIONS.field(name) for name in ("title", "tags"))])


@dataclass(frozen=True)
class Work:
    """What a worklist is made of, beside the run's tables."""

    sites: list[str]
    judged: Judged  # of all pairs, whatever the verdict: they are done
    pairs: int  # at most
    questions: int  # of the archive
    k: int  # neighbours of each
    language: str
    linked_share: float  # of the duplicates; 0 where no links tell it


def cluster(
    run: Run, decided: Decided, known: Known, texts: Table, questions: Shards, rarities: Table, work: Work
) -> tuple[Clustered, Table]:
    """Make pairs, clusters and what goes with them, and the worklist of the likeliest other pairs."""
    tables = make_clusters(run, decided, known, texts, replace(questions, columns=CRITERIA))
    return tables, make_worklist(run, tables, known, replace(questions, columns=TITLED), rarities, work)


def make_worklist(run: Run, tables: Clustered, known: Known, questions: Shards, rarities: Table, work: Work) -> Table:
    """Make the worklist (WORKLIST), and its sheet.

    A sheet that is there already stays as it is: it is the same list, and may hold verdicts.
    """
    owners = Whole(tables.members.only("key", "cluster"))
    settled = Whole(run.map("settled", settled_by, known.links, owners, work.sites, into=LABELS))
    some = run.map("likeliest", likeliest_of, tables.pairs, owners, settled, work, into=_CHOSEN)
    chosen = Whole(run.map("chosen", likeliest_of, Whole(some), owners, settled, work, into=_CHOSEN))
    titles = run.map("titles", titles_of, questions, chosen, into=TITLES)
    table = run.map("worklist", shown, chosen, Whole(titles), Whole(rarities), work, into=WORKLIST, publish=True)
    sheet = storage.join(run.uri, "worklist.tsv")
    if not storage.exists(sheet):
        storage.write_bytes(sheet, _sheet(table.read(0).to_pylist()).encode())
    return table


def settled_by(links: str | None, members: pa.Table, site_names: list[str]) -> pa.Table:
    """Return, for each cluster that known links connect with others, the smallest of these (LABELS)."""
    clusters, smallest = components(_clusters_of(pairs_in(links_table(links, site_names)), members))
    return pa.table([clusters, smallest], schema=LABELS)


def likeliest_of(table: pa.Table, members: pa.Table, settled: pa.Table, work: Work) -> pa.Table:
    """Return the likeliest rows of PAIRS that are not joined, but for those that are settled; with their keys."""
    table = table.filter(pc.invert(table["joined"])).select(PAIRS.names)
    pairs = keys_of_pairs(table, Sites(work.sites))
    clusters = _clusters_of(pairs, members)
    judged = _clusters_of(np.stack([work.judged.left, work.judged.right], axis=1), members)
    linked = represented(clusters, settled["key"].to_numpy(), settled["cluster"].to_numpy())
    is_open = (linked[:, 0] != linked[:, 1]) & ~are_pairs_among(np.sort(judged, axis=1), np.sort(clusters, axis=1))
    rows = np.flatnonzero(is_open)
    chosen = likeliest(pairs[rows], table["probability"].to_numpy()[rows], clusters[rows], work.pairs)
    rows = rows[chosen]
    return pa.table([*pairs[rows].T, *table.take(pa.array(rows)).columns], schema=_CHOSEN)


def _clusters_of(pairs: np.ndarray, members: pa.Table) -> np.ndarray:
    """Return the clusters of pairs of keys; a question in none is one by itself."""
    return represented(pairs, members["key"].to_numpy(), members["cluster"].to_numpy())


def keys_of_pairs(table: pa.Table, sites: Sites) -> np.ndarray:
    """Return the pairs of a table like `pairs` (int64 keys, shape (m, 2))."""
    sides = ((table[f"site_{side}"], table[f"question_id_{side}"]) for side in ("left", "right"))
    return np.stack([sites.pack_columns(names, numbers, "pairs") for names, numbers in sides], axis=1)


def titles_of(questions: Iterator[pa.RecordBatch], pairs: pa.Table) -> pa.Table:
    """Return the titles and tags of the questions of a shard that are in `pairs` (KEY_PAIRS)."""
    wanted = distinct(pairs_in(pairs))
    found = [
        pa.table([batch[name] for name in TITLES.names], schema=TITLES).filter(
            pa.array(are_among(wanted, batch["key"].to_numpy()))
        )
        for batch in questions
    ]
    return pa.concat_tables([TITLES.empty_table(), *found])


def shown(pairs: pa.Table, titles: pa.Table, rarities: pa.Table, work: Work) -> pa.Table:
    """Return rows of PAIRS with titles, links and the evidence in words (WORKLIST)."""
    of_keys = {row["key"]: Titled(row["title"], row["tags"]) for row in titles.to_pylist()}
    rarity = rarities["rarity"].to_numpy()
    is_stop = functools.partial(is_stop_word, language=work.language)
    telling = Rarity(stems(work.language), is_stop, lambda stem: float(rarity[bucket_of(stem)]))
    rows = _rows(pairs.select(PAIRS.names), pairs_in(pairs), of_keys, work, telling)
    return pa.Table.from_pylist(rows, schema=WORKLIST)


def _rows(table: pa.Table, keys: np.ndarray, titles: dict[int, Titled], work: Work, rarity: Rarity) -> list[TableRow]:
    p = unlinked(table["probability"].to_numpy(), work.linked_share)
    expected = np.cumsum(p).tolist()
    rows = []
    for place, (pair, ends) in enumerate(zip(table.to_pylist(), keys.tolist(), strict=True)):
        left, right = (titles.get(end, Titled("", ())) for end in ends)
        sides = zip(("left", "right"), ends, ends_of(pair), strict=True)
        shown = {
            name: value
            for side, end, key in sides
            for name, value in (
                (f"title_{side}", titles[end].title if end in titles else None),
                (f"link_{side}", link(key)),
            )
        }
        evidence = in_words(pair, left, right, work.questions, work.k, rarity)
        added = {"probability": p[place], "expected_right": expected[place], "evidence": evidence, "verdict": ""}
        rows.append({**pair, **shown, **added, "rank": place + 1})
    return rows


def _sheet(rows: list[TableRow]) -> str:
    asked = [Verdict(**{name: row[name] for name in Verdict._fields}) for row in rows]
    names = [name for name in WORKLIST.names if name not in Verdict._fields]
    shown = {name: [_shown(row[name]) for row in rows] for name in names}
    return format_verdicts(asked, shown)


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else str(value)
