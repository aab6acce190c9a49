"""Looking whether tables from elsewhere have the columns that --columns names, before their rows are read."""

from collections.abc import Sequence

from dupq import storage
from dupq.dump.archives.streams import UnpackLimits, open_member
from dupq.dump.files import Member
from dupq.dump.tabular.columns import Columns, locate
from dupq.dump.tabular.delimited import column_names, separator_of
from dupq.side_by_side import side_by_side


def check_columns(members: Sequence[Member], columns: Columns, limits: UnpackLimits) -> None:
    """Raise DupqError for the first CSV, TSV or Parquet file that cannot be opened, or lacks one of `columns`."""
    side_by_side(lambda member: locate(columns, _names(member, limits), member.source), members)


def _names(member: Member, limits: UnpackLimits) -> list[str]:
    if member.form == "parquet":
        return list(storage.read_schema(member.uri).names)
    with open_member(member, limits) as stream:
        return column_names(stream, member.source, separator_of(member.uri))
