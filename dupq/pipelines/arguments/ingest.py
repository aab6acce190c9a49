"""The arguments of `dupq ingest`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dupq import storage
from dupq.archive import all_counts
from dupq.dump.columns import BY_NAME, Columns
from dupq.dump.sites import Found, find_sites
from dupq.dump.units import check_columns
from dupq.runs import writer
from dupq.settings import config
from dupq.settings.config import Settings

if TYPE_CHECKING:
    from dupq.stages.ingest.tasks import Ingest

_WRITTEN = (
    *("questions/site=", "answers/site=", "links/site=", "ids/site=", "rejects/site="),
    *("ingest/", "_parts/", "manifest.json"),
)


class Checked(NamedTuple):
    """A job that can be begun: the sites in its dumps, and how they are ingested."""

    found: Found
    stage: "Ingest"


@dataclass(frozen=True)
class IngestJob:
    """The arguments of `dupq ingest`; dumps and output are URIs."""

    dumps: tuple[str, ...]
    output: str
    site: str | None = None
    columns: Columns = BY_NAME
    answers: bool = False
    assignments: tuple[str, ...] = ()

    def check(self) -> Checked:
        """What there is to do; raises DupqError for what is wrong, before any work."""
        writer.check_output(self.output)
        settings = config.assign_free(Settings(), self.assignments, ("ingest",), "not read by this job").ingest
        all_counts(storage.absolute(self.output))
        dumps, output = [storage.absolute(dump) for dump in self.dumps], storage.absolute(self.output)
        found = find_sites(dumps, self.site, self.columns.is_given, _own_files(output, dumps))
        from dupq.stages.ingest.tasks import Ingest  # with what reads and writes a dump

        stage = Ingest(output, settings, self.answers, self.columns)
        for site in found.sites:
            check_columns(site, stage.reading)
        return Checked(found, stage)


def _own_files(output: str, dumps: Sequence[str]) -> list[str]:
    """How the URIs of files begin that the job itself writes, which are no dump where dumps are looked for.

    That is all of the output, unless a dump is in it.
    """
    if any(f"{dump}/".startswith(f"{output}/") for dump in dumps):
        return [storage.join(output, name) for name in _WRITTEN]
    return [f"{output}/"]
