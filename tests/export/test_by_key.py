"""Looking rows up by the keys of questions: the same as in a dictionary."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq.export.by_key import by_key
from dupq.runs.table_view import TableView, in_memory
from dupq.text.keys import Sites

SITES = Sites(["a", "b"])
SCHEMA = pa.schema(
    [pa.field(name, kind, nullable=False) for name, kind in (("site", pa.string()), ("question_id", pa.int64()))]
    + [pa.field("title", pa.string(), nullable=False), pa.field("size", pa.int64(), nullable=False)]
)
KEYS = st.tuples(st.sampled_from(["a", "b", "elsewhere"]), st.integers(0, 30))
VALUES = st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.integers(-5, 5))


def view(rows: dict, chunk: int) -> TableView:
    found = [
        {"site": site, "question_id": number, "title": title, "size": size} for (site, number), (title, size) in rows
    ]
    table = pa.Table.from_pylist(found, SCHEMA)
    pieces = [table.slice(start, chunk) for start in range(0, len(table), chunk)]  # parts of the same buffers
    return in_memory("here", pa.concat_tables(pieces) if pieces else table)


@settings(max_examples=30)  # each makes files
@given(st.dictionaries(KEYS, VALUES), st.lists(KEYS, max_size=12), st.integers(1, 9))
def test_rows_are_those_of_a_dictionary(rows: dict, asked: list, chunk: int) -> None:
    known = [key for key in asked if key[0] in SITES.names]
    sites, numbers = pa.chunked_array([[site for site, _ in known]], pa.string()), [number for _, number in known]
    keys = SITES.pack_columns(sites, pa.chunked_array([numbers], pa.int64()), "here")
    with by_key(view(list(rows.items()), chunk), ["title", "size"], SITES) as table:
        taken = table.take(keys)
        found = list(zip(taken["title"].to_pylist(), taken["size"].to_pylist(), strict=True))
    assert found == [rows.get(key, (None, None)) for key in known]
