"""One site of a dump as tables."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dupq.dump.archives import DumpSite
from dupq.dump.contents import BATCH, Contents, Format, read_contents
from dupq.dump.links import link
from dupq.dump.posts import is_other_post, post
from dupq.errors import DupqError
from dupq.tables import LINKS, QUESTIONS, REJECTS

_POSTS = Format("posts", QUESTIONS, post, is_other_post)
_LINKS = Format("postlinks", LINKS, link)
_NO_LINKS = Contents(LINKS.empty_table(), REJECTS.empty_table(), Counter())


@dataclass(frozen=True)
class SiteTables:
    """The tables of one site, without its name (a partition of the archive's tables), and what was counted.

    `questions` is sorted by question_id and has each once; `links` is sorted by all its columns; `rejects`
    is in the order of the files. `counts`: rows = questions + other_posts + rejects + fabricated +
    duplicate_ids, and link_rows = links + link_rejects.
    """

    questions: pa.Table
    links: pa.Table
    rejects: pa.Table
    counts: dict[str, int]


def read_site(dump: DumpSite) -> SiteTables:
    """Every question and link of a site.

    A row that cannot be used goes to `rejects`; of rows with the same Id the last one counts. The tables of
    the whole site are held in memory. Raises DupqError for a file that is damaged, cut short or no dump, and
    if there is not one question in it.
    """
    posts = read_contents(dump.posts, _POSTS)
    if not posts.table.num_rows:
        raise DupqError(f"{dump.posts.source}: no questions in it, only {_all_else(posts)}")
    links = _NO_LINKS if dump.links is None else read_contents(dump.links, _LINKS)
    questions = last_of_each_id(posts.table)
    counts = {
        "rows": posts.counts["rows"],
        "questions": questions.num_rows,
        "other_posts": posts.counts["other_posts"] + posts.counts["skipped"],
        "rejects": posts.rejects.num_rows,
        "fabricated": posts.counts["fabricated"],
        "duplicate_ids": posts.table.num_rows - questions.num_rows,
        "link_rows": links.counts["rows"],
        "links": links.table.num_rows,
        "link_rejects": links.rejects.num_rows,
    }
    check_counts(counts, dump.posts.source)
    ordered_links = links.table.sort_by([(name, "ascending") for name in LINKS.names])
    return SiteTables(questions, ordered_links, pa.concat_tables([posts.rejects, links.rejects]), counts)


def check_counts(counts: Mapping[str, int], source: str) -> None:
    """Raise DupqError unless every row of the dump is accounted for, exactly once."""
    of_posts = ("questions", "other_posts", "rejects", "fabricated", "duplicate_ids")
    for total, parts in {"rows": of_posts, "link_rows": ("links", "link_rejects")}.items():
        if counts[total] != sum(counts[part] for part in parts):
            shown = ", ".join(f"{part} {counts[part]:,}" for part in parts)
            raise DupqError(f"{source}: {counts[total]:,} {total} are not the sum of {shown}: a bug in dupq")


def last_of_each_id(questions: pa.Table) -> pa.Table:
    """`questions` sorted by question_id; of rows with the same one only the last."""
    ids = questions.column("question_id").to_numpy()
    if (ids[1:] > ids[:-1]).all():
        return questions
    order = np.argsort(ids, kind="stable")
    is_last = np.append(ids[order][1:] != ids[order][:-1], True)
    return _rows_at(questions, order[is_last])


def _rows_at(table: pa.Table, indices: np.ndarray) -> pa.Table:
    """`table.take(indices)`, which fails on more than 2 GiB in a string column, without that limit."""
    schema = pa.schema([f.with_type(pa.large_string()) if f.type == pa.string() else f for f in table.schema])
    wide = table.cast(schema).combine_chunks()
    slices = [indices[start : start + BATCH] for start in range(0, len(indices), BATCH)]
    return pa.concat_tables([wide.take(part).cast(table.schema) for part in slices])


def _all_else(posts: Contents) -> str:
    """What a file without questions has instead."""
    others = posts.counts["other_posts"] + posts.counts["skipped"] + posts.counts["fabricated"]
    text = f"{others:,} other posts and {posts.rejects.num_rows:,} unusable rows"
    if not posts.rejects.num_rows:
        return text
    reasons = Counter(posts.rejects.column("reason").to_pylist())
    return f"{text} (most often: {reasons.most_common(1)[0][0]})"
