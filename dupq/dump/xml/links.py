"""Parsing rows of PostLinks.xml, by compiled code or one by one."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dupq.dump.fields import identifier, milliseconds
from dupq.dump.xml.columnar import numbers, times
from dupq.dump.xml.plain_rows import PlainRows
from dupq.dump.xml.row_layout import ALWAYS, DATE, INTEGER, Attribute, layout
from dupq.tables import LINKS
from dupq.text.keys import MAXIMUM_ID

LINK_LAYOUT = layout(
    (
        Attribute("PostId", INTEGER, ALWAYS, lowest=0, highest=MAXIMUM_ID),
        Attribute("RelatedPostId", INTEGER, ALWAYS, lowest=0, highest=MAXIMUM_ID),
        Attribute("LinkTypeId", INTEGER, ALWAYS, lowest=0, highest=MAXIMUM_ID),
        Attribute("CreationDate", DATE),
    )
)
_QUESTION, _RELATED, _TYPE, _CREATED = range(4)  # in PlainRows.numbers

_LINK_TYPES = {1: "linked", 3: "duplicate"}


def link(attributes: Mapping[str, str]) -> dict[str, object]:
    """One row of LINKS, times in milliseconds. Raises BadField naming what makes it unusable."""
    return {
        "question_id": identifier(attributes, "PostId"),
        "related_id": identifier(attributes, "RelatedPostId"),
        "link_type": _type_name(identifier(attributes, "LinkTypeId")),
        "creation_date": milliseconds(attributes, "CreationDate"),
    }


def link_columns(rows: PlainRows) -> pa.Table:
    """LINKS of plain rows."""
    types, places = np.unique(rows.numbers[_TYPE], return_inverse=True)
    names = pa.array([_type_name(link_type) for link_type in types.tolist()], pa.string())
    columns = [numbers(rows, _QUESTION), numbers(rows, _RELATED), names.take(pa.array(places)), times(rows, _CREATED)]
    return pa.Table.from_arrays(columns, schema=LINKS)


def _type_name(link_type: int) -> str:
    return _LINK_TYPES.get(link_type, f"type-{link_type}")
