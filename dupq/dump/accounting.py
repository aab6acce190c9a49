"""Accounting: every row of every file of a site is counted exactly once, so that none is lost unnoticed."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow.compute as pc

from dupq import storage
from dupq.dump.files import Member
from dupq.errors import DupqError, RejectsError
from dupq.settings.ingest import IngestSettings
from dupq.side_by_side import side_by_side
from dupq.tables import REJECTS

_ENDS = ("questions", "answers", "links", "other_posts", "fabricated", "duplicate_ids", "rejects")  # of a row
_FORBIDDEN = "forbidden_characters"  # that XML forbids, which were left out of rows
_POSITIONS = {"xml": "byte", "csv": "line", "json": "row", "parquet": "row"}  # what the position of a reject counts
REJECTS_ALLOWED = 10  # of a site, whatever their share: small sites have few rows
_SHOWN = 100  # characters of a reject


def check_rejects(rows: int, rejects: int, settings: IngestSettings, folder: str) -> None:
    """Raise RejectsError naming `folder`, where the rejects are, if too many of a site's rows are."""
    if rejects > max(REJECTS_ALLOWED, settings.maximum_reject_share * rows):
        raise RejectsError(
            f"{rejects:,} of {rows:,} rows are broken, more than the share of "
            f"{settings.maximum_reject_share:g} that --max-reject-share allows{_commonest(folder)}; "
            f"see {folder} for their reasons"
        )


def _commonest(folder: str) -> str:
    """What most rejects in `folder` are rejected for, how many those are, and the first of them; "" without any."""
    files = [file.uri for file in storage.list_files(folder, ".parquet")]
    counts = Counter[str]()
    for reasons in side_by_side(lambda uri: pc.value_counts(storage.read_table(uri, REJECTS, ["reason"])[0]), files):
        counts.update({counted["values"]: counted["counts"] for counted in reasons.to_pylist()})
    if not counts:
        return ""
    (reason, count), *_ = counts.most_common(1)
    first = next(
        row for uri in files for row in storage.read_table(uri, REJECTS).to_pylist() if row["reason"] == reason
    )
    source, position = first["source"], first["position"]
    shown = " ".join(first["excerpt"].split())[:_SHOWN]
    place = f"{_POSITIONS[Member(source).form]} {position:,} of {source}"
    return f", most often: {reason} ({count:,} rows), first at {place}: {shown!r}"


class Account:
    """What the rows of a site's files became, file by file. Each has `rows`, the sum of all the others.

    Apart from those is how many characters that XML forbids were left out, if any were.
    """

    def __init__(self, sources: Sequence[str], links: int) -> None:
        """`sources` are the names of the files, of which the last `links` hold links."""
        self._sources = sources
        self._files = [Counter[str]() for _ in sources]
        self._posts = len(sources) - links

    def add(self, file: int, counts: Mapping[str, int]) -> None:
        """Count rows of a file in."""
        self._files[file].update(counts)

    def leave_out(self, file: int, table: str, rows: int) -> None:
        """Some rows counted for a table have the id of a later row."""
        self._files[file][table] -= rows
        self._files[file]["duplicate_ids"] += rows

    def reject_doubled(self) -> None:
        """Count rows with the id of a later row as rejects: in a table from elsewhere they are no older versions."""
        for counts in self._files:
            counts["rejects"] += counts.pop("duplicate_ids", 0)

    def check_rejects(self, settings: IngestSettings, folder: str, doubled: int = 0) -> None:
        """Raise RejectsError naming `folder`, where the rejects are, if there are too many, `doubled` ids included."""
        rows, rejects = (sum(counts[name] for counts in self._files) for name in ("rows", "rejects"))
        check_rejects(rows, rejects + doubled, settings, folder)

    def check_questions(self, folder: str) -> None:
        """Raise DupqError if there is not one question; rejects in `folder` may say why."""
        posts = self._sum(0, self._posts)
        if not posts["questions"]:
            others = posts["other_posts"] + posts["fabricated"] + posts["answers"]
            raise DupqError(
                f"{self._sources[0]}: no questions in it, only {others:,} other posts and "
                f"{posts['rejects']:,} unusable rows{_commonest(folder)}"
            )

    def closed(self) -> dict[str, object]:
        """The sums of the site, and `files`, the counts of each. Raises DupqError if they do not add up."""
        for source, counts in zip(self._sources, self._files, strict=True):
            if counts["rows"] != sum(counts[end] for end in _ENDS):
                shown = ", ".join(f"{end} {counts[end]:,}" for end in _ENDS if counts[end])
                raise DupqError(f"{source}: {counts['rows']:,} rows are not the sum of {shown}: a bug in dupq")
        posts, links = self._sum(0, self._posts), self._sum(self._posts, len(self._files))
        sums = {name: posts[name] for name in ("rows", *_ENDS) if name != "links"}
        sums |= {"link_rows": links["rows"], "links": links["links"], "link_rejects": links["rejects"]}
        if forbidden := posts[_FORBIDDEN] + links[_FORBIDDEN]:
            sums[_FORBIDDEN] = forbidden
        return {**sums, "files": dict(zip(self._sources, map(_filled, self._files), strict=True))}

    def _sum(self, start: int, stop: int) -> Counter[str]:
        total = Counter[str]()
        for counts in self._files[start:stop]:
            total.update(counts)
        return total


def _filled(counts: Mapping[str, int]) -> dict[str, int]:
    names = ("rows", *_ENDS, _FORBIDDEN)
    return {name: counts.get(name, 0) for name in names if name in ("rows", "rejects") or counts.get(name)}
