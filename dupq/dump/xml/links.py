"""Rows of PostLinks.xml, all at once or one by one."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dupq.dump.fields import identifier, milliseconds
from dupq.dump.xml.columnar import Columns
from dupq.tables import LINKS

_LINK_TYPES = {1: "linked", 3: "duplicate"}


def link(attributes: Mapping[str, str]) -> dict[str, object]:
    """One row of LINKS, times in milliseconds. Raises BadField naming what makes it unusable."""
    return {
        "question_id": identifier(attributes, "PostId"),
        "related_id": identifier(attributes, "RelatedPostId"),
        "link_type": _type_name(identifier(attributes, "LinkTypeId")),
        "creation_date": milliseconds(attributes, "CreationDate"),
    }


def link_columns(rows: Sequence[Mapping[str, str]]) -> tuple[pa.Table, pa.Array]:
    """LINKS of those of `rows` that are in the usual form, and which these are."""
    columns = Columns(rows)
    ids = [columns.identifier(name) for name in ("PostId", "RelatedPostId")]
    types = pc.dictionary_encode(columns.identifier("LinkTypeId"))
    names = pa.array(map(_type_name, types.dictionary.to_pylist()), pa.string()).take(types.indices)
    table = pa.table([*ids, names, columns.time("CreationDate")], schema=LINKS)
    return table.filter(columns.is_usual), columns.is_usual


def _type_name(link_type: int) -> str:
    return _LINK_TYPES.get(link_type, f"type-{link_type}")
