"""Accounting: every row of every file of a site is counted exactly once, so that none is lost unnoticed."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dupq.errors import DupqError, RejectsError
from dupq.settings.ingest import IngestSettings

_ENDS = ("questions", "answers", "links", "other_posts", "fabricated", "duplicate_ids", "rejects")  # of a row


def check_rejects(rows: int, rejects: int, settings: IngestSettings, folder: str) -> None:
    """Raise RejectsError naming `folder`, where the rejects are, if too many of a site's rows are."""
    if rejects > max(settings.rejects_allowed, settings.maximum_reject_share * rows):
        raise RejectsError(
            f"{rejects:,} of {rows:,} rows are broken, more than the share of "
            f"{settings.maximum_reject_share:g} that --max-reject-share allows; see {folder} for their reasons"
        )


class Account:
    """What the rows of a site's files became, file by file. Each has `rows`, the sum of all the others."""

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

    def check_rejects(self, settings: IngestSettings, folder: str) -> None:
        """Raise RejectsError naming `folder`, where the rejects are, if there are too many."""
        rows, rejects = (sum(counts[name] for counts in self._files) for name in ("rows", "rejects"))
        check_rejects(rows, rejects, settings, folder)

    def check_questions(self) -> None:
        """Raise DupqError if there is not one question."""
        posts = self._sum(0, self._posts)
        if not posts["questions"]:
            others = posts["other_posts"] + posts["fabricated"] + posts["answers"]
            raise DupqError(
                f"{self._sources[0]}: no questions in it, only {others:,} other posts and "
                f"{posts['rejects']:,} unusable rows"
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
        return {**sums, "files": dict(zip(self._sources, map(_filled, self._files), strict=True))}

    def _sum(self, start: int, stop: int) -> Counter[str]:
        total = Counter[str]()
        for counts in self._files[start:stop]:
            total.update(counts)
        return total


def _filled(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in ("rows", *_ENDS) if name in ("rows", "rejects") or counts.get(name)}
