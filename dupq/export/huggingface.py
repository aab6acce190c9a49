"""A dataset folder as Hugging Face's `datasets` and its Hub read it: Parquet files, and a card that names them.

The layout is that of https://huggingface.co/docs/hub/datasets-manual-configuration: `configs` in the YAML header of
README.md, each with the files of its one split, `train`, which is what unsplit data is called there.
"""

import html
from collections.abc import Iterator

import jinja2
import pyarrow as pa
import regex

from dupq import storage, tables
from dupq.export.by_key import sites_of
from dupq.export.written import Written
from dupq.runs.reader import Run
from dupq.runs.table_view import TableView

CARD = "README.md"
_SITE = pa.schema([pa.field("site", pa.string(), nullable=False)])
_SCHEMAS = {"pairs": tables.PAIRS, "clusters": tables.CLUSTERS, "questions": pa.schema([*_SITE, *tables.QUESTIONS])}
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")
_LICENCE = regex.compile(r"CC BY-SA (2\.5|3\.0|4\.0)")
_MARKUP = regex.compile(r"([\\`*_{}\[\]()#+!|~])")


def write(run: Run, output: str) -> list[Written]:
    """Write the tables `pairs`, `clusters` and `questions` as folders of Parquet files, and README.md last.

    The tables are the run's own, and the archive's questions with their site. Memory: one file of a table; on S3 the
    file that is written too.
    """
    licences: set[str] = set()
    views = {"pairs": run.pairs, "clusters": run.clusters, "questions": run.questions}
    written = []
    for name, view in views.items():
        rows = 0
        for number, table in enumerate(_files(view, name, licences)):
            storage.write_table(storage.join(output, name, f"part-{number:05d}.parquet"), table, _SCHEMAS[name])
            rows += len(table)
        written.append(Written(storage.join(output, name), rows))
    uri = storage.join(output, CARD)
    storage.write_bytes(uri, _card(run, [found.rows for found in written], sorted(licences)).encode())
    return [*written, Written(uri, 0)]


def _files(view: TableView, name: str, licences: set[str]) -> Iterator[pa.Table]:
    for table in view.files():
        if name == "questions":
            licences.update(licence for licence in table["content_license"].unique().to_pylist() if licence)
        yield table


def _card(run: Run, rows: list[int], licences: list[str]) -> str:
    """README.md. Nothing in its header is a stranger's text."""
    known = [found[1] for licence in licences if (found := _LICENCE.fullmatch(licence))]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("dupq.export", ""), undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment.get_template("card.md.jinja").render(
        size=_SIZES[min(len(_SIZES) - 1, max(0, len(str(max(rows))) - 3))],
        versions=known if len(known) == len(licences) else [],
        run_id=escaped(run.manifest["run_id"]),
        sites=[(escaped(site), count) for site in sites_of(run).names if (count := run.metrics["sites"][site])],
        rows=dict(zip(_SCHEMAS, rows, strict=True)),
        threshold=run.metrics.get("threshold"),
        licences=[escaped(licence) for licence in licences],
    )


def escaped(text: str) -> str:
    """A text that stays text in Markdown."""
    return _MARKUP.sub(r"\\\1", html.escape(" ".join(text.split())))
