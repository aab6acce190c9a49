"""Small archives as tables: questions by number, and which of them are known duplicates."""

from pathlib import Path

import pyarrow as pa

from dupq import storage
from dupq.tables import LINKS, QUESTIONS


def write_site(folder: Path, site: str, questions: int, duplicates: list[tuple[int, int]]) -> None:
    rows = [
        {"question_id": number, "title": f"thing {number}", "body_html": f"<p>how {number}</p>", "tags": []}
        for number in range(1, questions + 1)
    ]
    links = [{"question_id": right, "related_id": left, "link_type": "duplicate"} for left, right in duplicates]
    for name, found, schema in (("questions", rows, QUESTIONS), ("links", links, LINKS)):
        storage.write_table(
            f"{folder}/{name}/site={site}/part-0.parquet", pa.Table.from_pylist(found, schema=schema), schema
        )
