"""pairs → worklist: the likeliest pairs between different clusters, for people to judge.

    settled   one task         which clusters known links connect
    likeliest a task a file    the likeliest pairs of a file of pairs
    titles    a task a shard   titles and tags of their questions
    write     here             the likeliest of all files: the table, and worklist.tsv to be filled in

What people have linked or judged is no work, nor is any other pair of the same two clusters. Memory: a file of pairs,
and 16 bytes a question in clusters or with a known link.
"""

import functools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.clusters.components import components, represented
from dupq.clusters.worklist import Rarity, Titled, in_words, likeliest, unlinked
from dupq.evaluation.verdict_files import Judged
from dupq.evaluation.verdicts import Verdict, format_verdicts
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.links.tables import known_duplicates
from dupq.runs.layout import WorklistFiles
from dupq.runs.links import link
from dupq.runs.reader import TableRow, ends_of
from dupq.shards import Shard
from dupq.stages.titles import read_titles
from dupq.tables import LABELS, MEMBERS, PAIRS, RARITIES, WORKLIST
from dupq.text.keys import Sites, are_pairs_among, distinct
from dupq.text.stop_words import is_stop_word
from dupq.text.terms import bucket_of
from dupq.text.word_forms import stems


@dataclass(frozen=True)
class Work:
    """What a worklist is made of, beside the run's tables."""

    judged: Judged  # of all pairs, whatever the verdict: they are done
    pairs: int  # at most
    questions: int  # of the archive
    k: int  # neighbours of each
    language: str
    linked_share: float  # of the duplicates; 0 where no links tell it


def make_worklist(files: WorklistFiles, shards: list[Shard], sites: Sites, work: Work) -> Report:
    """Write the worklist. A sheet that is there already stays as it is: it is the same list, and may hold verdicts."""
    report = run_tasks("worklist", _settled, [(files, sites.names)])
    names = [file.relative for file in storage.list_files(files.pairs, ".parquet")]
    report.add(run_tasks("worklist", _likeliest_of_file, [(files, sites.names, work, name) for name in names]))
    tables = [storage.read_table(storage.join(files.folder, "likeliest", name), PAIRS) for name in names]
    table = _likeliest(pa.concat_tables([PAIRS.empty_table(), *tables]), files, sites, work)
    keys = distinct(_keys(table, sites))
    read, titles = read_titles("worklist", storage.join(files.folder, "titles"), keys, shards, sites)
    report.add(read)
    rows = _rows(table, _keys(table, sites), titles, work, _rarity(files, work.language))
    storage.write_table(files.output, pa.Table.from_pylist(rows, schema=WORKLIST), WORKLIST)
    if not storage.exists(files.sheet):
        storage.write_bytes(files.sheet, _sheet(rows).encode())
    return report


def _settled(files: WorklistFiles, site_names: list[str]) -> Counts:
    """Write, for each cluster that known links connect with others, the smallest of these."""

    def make() -> Counts:
        links = np.zeros((0, 2), np.int64) if files.links is None else known_duplicates(files.links, Sites(site_names))
        clusters, smallest = components(represented(links, *_members(files)))
        storage.write_table(files.settled, pa.table([clusters, smallest], schema=LABELS), LABELS)
        return {}

    return skip_or(files.settled, make)


def _members(files: WorklistFiles) -> tuple[np.ndarray, np.ndarray]:
    table = storage.read_table(files.members, MEMBERS, ["key", "cluster"])
    return table["key"].to_numpy(), table["cluster"].to_numpy()


def _likeliest_of_file(files: WorklistFiles, site_names: list[str], work: Work, name: str) -> Counts:
    output = storage.join(files.folder, "likeliest", name)

    def make() -> Counts:
        table = storage.read_table(storage.join(files.pairs, name), PAIRS)
        table = table.filter(pc.invert(table["joined"]))
        storage.write_table(output, _likeliest(table, files, Sites(site_names), work), PAIRS)
        return {}

    return skip_or(output, make)


def _likeliest(table: pa.Table, files: WorklistFiles, sites: Sites, work: Work) -> pa.Table:
    """The likeliest rows of `pairs`, none of them joined, but for those that are settled."""
    members, settled = _members(files), storage.read_table(files.settled, LABELS)
    pairs = _keys(table, sites)
    clusters = represented(pairs, *members)
    judged = represented(np.stack([work.judged.left, work.judged.right], axis=1), *members)
    linked = represented(clusters, settled["key"].to_numpy(), settled["cluster"].to_numpy())
    is_open = (linked[:, 0] != linked[:, 1]) & ~are_pairs_among(np.sort(judged, axis=1), np.sort(clusters, axis=1))
    rows = np.flatnonzero(is_open)
    chosen = likeliest(pairs[rows], table["probability"].to_numpy()[rows], clusters[rows], work.pairs)
    return table.take(pa.array(rows[chosen]))


def _keys(table: pa.Table, sites: Sites) -> np.ndarray:
    """The pairs of a table like `pairs` (int64 keys, shape (m, 2))."""
    sides = ((table[f"site_{side}"], table[f"question_id_{side}"]) for side in ("left", "right"))
    return np.stack([sites.pack_columns(names, numbers, "pairs") for names, numbers in sides], axis=1)


def _rarity(files: WorklistFiles, language: str) -> Rarity:
    rarities = storage.read_table(files.rarities, RARITIES)["rarity"].to_numpy()
    is_stop = functools.partial(is_stop_word, language=language)
    return Rarity(stems(language), is_stop, lambda stem: float(rarities[bucket_of(stem)]))


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
