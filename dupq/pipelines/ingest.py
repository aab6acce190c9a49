"""The ingest job: dumps in, an archive's tables out."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dupq import storage
from dupq.dump.sites import Found, find_sites
from dupq.dump.tabular.columns import Columns, parse_columns
from dupq.errors import SettingError
from dupq.runs import writer
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.stages.ingest.ingest import all_counts
from dupq.stages.ingest.ingest import ingest as ingest_sites
from dupq.stages.ingest.tasks import Ingest

_log = logging.getLogger(__name__)
_WRITTEN = (
    *("questions/site=", "answers/site=", "links/site=", "rejects/site="),
    *("ingest/", "_parts/", "manifest.json"),
)


class Checked(NamedTuple):
    """A job that can be begun: the sites in its dumps, and how they are ingested."""

    found: Found
    stage: Ingest


@dataclass(frozen=True)
class IngestJob:
    """The arguments of `jobs/ingest.py`; dumps and output are URIs."""

    dumps: tuple[str, ...]
    output: str
    site: str | None = None
    columns: str | None = None
    answers: bool = False
    assignments: tuple[str, ...] = ()

    def check(self) -> Checked:
        """What there is to do; raises DupqError for what is wrong, before any work."""
        writer.check_output(self.output)
        settings = config.assign_free(Settings(), self.assignments, ("ingest",), "not read by this job").ingest
        columns: Columns | None = None
        if self.columns is not None:
            if self.site is None:
                raise SettingError("--columns needs --site NAME: a table does not say which site it is of")
            columns = parse_columns(self.columns)
        all_counts(storage.absolute(self.output))
        dumps, output = [storage.absolute(dump) for dump in self.dumps], storage.absolute(self.output)
        found = find_sites(dumps, self.site, columns is not None, _own_files(output, dumps))
        return Checked(found, Ingest(output, settings, self.answers, columns))


def _own_files(output: str, dumps: Sequence[str]) -> list[str]:
    """How the URIs of files begin that the job itself writes, which are no dump where dumps are looked for.

    That is all of the output, unless a dump is in it.
    """
    if any(f"{dump}/".startswith(f"{output}/") for dump in dumps):
        return [storage.join(output, name) for name in _WRITTEN]
    return [f"{output}/"]


def ingest(job: IngestJob, checked: Checked | None = None) -> dict[str, dict[str, object]]:
    """Write the tables of all sites; returns what was counted for each, as manifest.json has it for all in the output.

    `checked` is what `job.check()` gave, if it was called before. Raises DupqError if a dump is missing, damaged or
    without questions, or has too many broken rows; after all others are done, if it is one of several.
    """
    (sites, failed, passed_over), stage = checked or job.check()
    for uri, why in passed_over.items():
        _log.warning(f"passed over: {uri} ({why})", extra={"told": {"passed_over": uri}})
    try:
        peak = ingest_sites(sites, stage, failed)
    finally:  # sites that are done are done, whatever became of the others
        everything = all_counts(stage.output)
        manifest = {"sites": everything, "settings": vars(stage.settings), "versions": writer.versions()}
        if passed_over:
            manifest["passed_over"] = passed_over
        storage.write_json(storage.join(stage.output, "manifest.json"), manifest)
    counts = {site.site: everything[site.site] for site in sites}
    for site, counted in counts.items():
        sums = {name: value for name, value in counted.items() if name != "files" and value}
        said = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in sums.items())
        _log.info(f"{site}: {said}", extra={"told": {"site": site, **sums}})
    said = f"   files passed over {len(passed_over):,}" if passed_over else ""
    _log.info(f"archive: {stage.output}   peak memory of a task {peak:.0f} MB{said}")
    return counts
