"""Writes docs/tables.md from the schemas of dupq/tables.py and the comments beside them: `make docs`."""

import ast
import inspect
import io
import tokenize
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from dupq import tables

PAGE = Path(__file__).with_name("tables.md")
_OPENING = """# Tables

Made by `make docs` from the schemas in [dupq/tables.py](../dupq/tables.py) and what is said there; a test holds it to
them. All tables are Parquet, compressed with zstd, and checked when they are written and when they are read.
[Quick start](quick-start.md#files-of-a-run) says where they are. A question's key is `(site, question_id)`; in a pair
the left key is the smaller one. Times are UTC.
"""


class Shown(NamedTuple):
    """A table of the page: its heading, its schema in dupq/tables.py, and what it holds."""

    heading: str
    name: str
    schema: pa.Schema
    about: str


SHOWN = (
    Shown("questions", "QUESTIONS", tables.QUESTIONS, "The archive: a row for each question. `site` is the folder's."),
    Shown("links", "LINKS", tables.LINKS, "Links between questions, as people made them. `site` is the folder's."),
    Shown("ids", "IDS", tables.IDS, "Of a table from elsewhere: the id of each row. `site` is the folder's."),
    Shown("answers", "ANSWERS", tables.ANSWERS, "With `ingest --answers`. `site` is the folder's."),
    Shown("rejects", "REJECTS", tables.REJECTS, "Rows of a dump that could not be read. `site` is the folder's."),
    Shown("pairs", "PAIRS", tables.PAIRS, "Of a run: each candidate pair, near duplicate, used link and verdict."),
    Shown("clusters", "CLUSTERS", tables.CLUSTERS, "Of a run: every question, also one that is alone."),
    Shown("cluster_stats", "CLUSTER_STATS", tables.CLUSTER_STATS, "Of a run: each cluster of two and more."),
    Shown("judge", "JUDGEMENTS", tables.JUDGEMENTS, "Of a run with a judge: its answers, and those to control pairs."),
    Shown("worklist", "WORKLIST", tables.WORKLIST, "Of a run: the likeliest pairs that are not joined, ranked."),
    Shown("changes", "CHANGED_CLUSTERS", tables.CHANGED_CLUSTERS, "Of a run with `--previous`: clusters that differ."),
    Shown("embeddings", "embeddings", tables.embeddings(300, True), "Of a run: each question that the encoder saw."),
)


def page() -> str:
    """The whole page."""
    said = descriptions(inspect.getsource(tables))
    return _OPENING + "".join(_section(shown, said[shown.name]) for shown in SHOWN)


def _section(shown: Shown, said: dict[str, str]) -> str:
    lines = [f"\n## {shown.heading}\n", f"{shown.about}\n", "| column | type | null | |", "|---|---|---|---|"]
    for field in shown.schema:
        null = "may be" if field.nullable else "never"
        lines.append(f"| `{field.name}` | {_type(field.type)} | {null} | {said[field.name]} |")
    return "\n".join(lines) + "\n"


def _type(of: pa.DataType) -> str:
    if pa.types.is_fixed_size_list(of):
        return f"list of {_type(of.value_type)}, all of one length"
    if pa.types.is_list(of):
        return f"list of {_type(of.value_type)}"
    return {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(of), str(of))


def descriptions(source: str) -> dict[str, dict[str, str]]:
    """Of each schema and function of schemas in a module: what the comment behind or above a column says of it."""
    comments = _comments(source)
    lines = source.splitlines()
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = ast.unparse(target)
        elif isinstance(node, ast.FunctionDef):
            name = node.name
        else:
            continue
        found[name] = {column: _comment(call, lines, comments) for column, call in _columns(node)}
    return found


def _columns(node: ast.AST) -> list[tuple[str, ast.Call]]:
    calls = [call for call in ast.walk(node) if isinstance(call, ast.Call) and call.args]
    return [
        (call.args[0].value, call)
        for call in calls
        if ast.unparse(call.func) in ("_required", "pa.field") and isinstance(call.args[0], ast.Constant)
    ]


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _comment(call: ast.Call, lines: list[str], comments: dict[int, str]) -> str:
    if call.end_lineno in comments:
        return comments[call.end_lineno]
    above = []
    number = call.lineno - 1
    while number in comments and lines[number - 1].lstrip().startswith("#"):
        above.append(comments[number])
        number -= 1
    return " ".join(reversed(above))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
