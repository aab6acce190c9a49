"""A run as a page of Markdown to post: the groups that gained most questions since an earlier run."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from dupq.report.explorer import TITLE, is_compared
from dupq.report.summary import counted
from dupq.runs.queries import LINK, Queries, changes_between
from dupq.runs.reader import Run, TableRow
from dupq.tables import CHANGED_CLUSTERS

GROUPS, DUPLICATES = 10, 10  # of each group so many are shown
# All of a group's questions joined it if it is new, or if there is no earlier run.
_CHOSEN = f"""CREATE TEMP TABLE chosen AS
    SELECT cluster_id, size, weakest_link, kinds, size - coalesce(shared, 0) AS gained
    FROM cluster_stats LEFT JOIN (
        SELECT cluster_id, list_sort(list(DISTINCT kind)) AS kinds, max(shared) AS shared
        FROM changes GROUP BY cluster_id
    ) USING (cluster_id) WHERE size > 1 AND (NOT $1 OR kinds IS NOT NULL)
    ORDER BY gained DESC, size DESC, cluster_id LIMIT {GROUPS}"""
_SHOWN_FIRST = "is_canonical DESC, answer_count DESC NULLS LAST, view_count DESC NULLS LAST, site, question_id"
_MEMBERS = f"""SELECT chosen.*, coalesce(own_id, concat(site, '/', question_id)) AS name,
        left(title, {TITLE}) AS title, {LINK} AS url, answer_count, view_count, tags
    FROM chosen JOIN clusters USING (cluster_id) LEFT JOIN questions USING (site, question_id)
    QUALIFY row_number() OVER (PARTITION BY cluster_id ORDER BY {_SHOWN_FIRST}) <= {DUPLICATES + 1}
    ORDER BY gained DESC, size DESC, cluster_id, {_SHOWN_FIRST}"""
_KINDS = """SELECT kind, count(DISTINCT coalesce(cluster_id, previous_cluster_id)) AS groups FROM changes
    GROUP BY kind ORDER BY kind"""
# Titles are their authors' text. Each sign that has a meaning in Markdown or HTML is escaped: by a backslash, or by a
# reference where not every Markdown knows the backslash. After @ and #, a word joiner keeps GitHub from calling people
# and linking issues.
_ESCAPES = {sign: f"&#{ord(sign)};" for sign in "&<>~:$|"} | {sign: f"\\{sign}" for sign in "\\`*_{}[]()+-.!"}
_TABLE = str.maketrans(_ESCAPES | {"@": "&#64;\u2060", "#": "\\#\u2060"})
_ADDRESS = str.maketrans({sign: f"%{ord(sign):02X}" for sign in "\\`\"'<>()[]|{} "})


def digest(run: Run, tables: Queries, since: Run | None = None) -> str:
    """Return the page, since the run `since`, or else the one that `run` builds on.

    `tables` has `clusters` and `questions` of the run.
    """
    has_earlier, metrics = since is not None or is_compared(run), run.metrics
    tables.add("cluster_stats", run.cluster_stats.dataset)
    if since is not None:
        tables.add("changes", changes_between(run, since))
    else:
        tables.add("changes", run.changes.dataset if has_earlier else CHANGED_CLUSTERS.empty_table())
    tables.make(_CHOSEN, has_earlier)
    groups = [list(rows) for _, rows in groupby(tables.rows(_MEMBERS), key=itemgetter("cluster_id"))]
    questions, count = counted(metrics["questions"], "question"), counted(metrics["clusters"], "group")
    line = f"{metrics['questions_in_clusters']:,} of {questions} are in {count} of duplicates."
    if has_earlier:
        changed = ", ".join(f"{row['groups']:,} {row['kind']}" for row in tables.rows(_KINDS))
        earlier = "the run before" if since is None else f"run {since.uri.rpartition('/')[2]}"
        line += f" Since {earlier}: {changed or 'no group has changed'}."
    shown = [line for number, rows in enumerate(groups, 1) for line in ("", *_group(number, rows))]
    return "\n".join(["# Duplicate questions", "", line, *shown, ""])


def _group(number: int, rows: list[TableRow]) -> list[str]:
    """Return the lines of a group, whose first row is the question that is kept."""
    kept, *others = rows
    changed = " and ".join(kept["kinds"] or ())
    if changed not in ("", "new") and kept["gained"]:
        changed += f", {counted(kept['gained'], 'question')} joined"
    said = [changed, counted(kept["size"], "question"), f"least sure pair {kept['weakest_link']:.2f}"]
    counts = {"answer": kept["answer_count"], "view": kept["view_count"]}
    has = [counted(count, noun) for noun, count in counts.items() if count]
    has += [f"tags {tags}" for tags in [_tags(kept)] if tags]
    about = f"{'; '.join(filter(None, said))}." + (f" The one to keep has {', '.join(has)}." if has else "")

    columns = {
        "duplicate": [_linked(one) for one in others],
        "answers": [_number(one["answer_count"]) for one in others],
        "views": [_number(one["view_count"]) for one in others],
        "other tags": [_tags(one, kept["tags"]) for one in others],
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    table = [[*columns], ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    more = kept["size"] - len(rows)
    rest = ["", f"And {counted(more, 'more duplicate')}."] if more else []
    return [f"## {number}. {_linked(kept)}", "", about, "", *(f"| {' | '.join(cells)} |" for cells in table), *rest]


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _tags(one: TableRow, known: Sequence[str] | None = None) -> str:
    return ", ".join(escaped(tag) for tag in one["tags"] or () if tag not in (known or ()))


def _linked(one: TableRow) -> str:
    """Return a question's title, with its address if it has one; without a title its id."""
    text = escaped(one["title"] or "") or escaped(one["name"])
    return f"[{text}]({one['url'].translate(_ADDRESS)})" if one["url"] else text


def escaped(text: str) -> str:
    """Return a text of strangers in one line of Markdown that says the same, and nothing else."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).translate(_TABLE).split())
