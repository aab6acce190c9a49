"""The ingest job: dumps in, an archive's tables out."""

from dataclasses import dataclass
from typing import Any

from dupq import config, runs, storage
from dupq.dump.columns import Columns, parse_columns
from dupq.dump.members import DumpSite
from dupq.dump.sites import find_sites
from dupq.errors import SettingError
from dupq.stages.ingest import all_counts
from dupq.stages.ingest import ingest as ingest_sites
from dupq.stages.ingest_tasks import Ingest


@dataclass(frozen=True)
class IngestJob:
    """What `jobs/ingest.py` was asked for; dumps and output are URIs."""

    dumps: tuple[str, ...]
    output: str
    site: str | None = None
    columns: str | None = None
    answers: bool = False
    assignments: tuple[str, ...] = ()

    def check(self) -> tuple[list[DumpSite], Ingest]:
        """The sites in the dumps, and how they are ingested; raises DupqError for what is wrong, before any work."""
        settings = config.load(assignments=list(self.assignments)).ingest
        columns: Columns | None = None
        if self.columns is not None:
            if self.site is None:
                raise SettingError("--columns needs --site NAME: a table does not say which site it is of")
            columns = parse_columns(self.columns)
        dumps = [storage.absolute(dump) for dump in self.dumps]
        sites = find_sites(dumps, self.site, foreign=columns is not None)
        return sites, Ingest(storage.absolute(self.output), settings, self.answers, columns)


def ingest(job: IngestJob) -> dict[str, dict[str, Any]]:
    """Write the tables of all sites; returns what was counted for each, as manifest.json has it for all in the output.

    Raises DupqError if a dump is missing, damaged or without questions, or has too many broken rows.
    """
    sites, stage = job.check()
    try:
        peak = ingest_sites(sites, stage)
    finally:  # sites that are done are done, whatever became of the others
        everything = all_counts(stage.output)
        manifest = {"sites": everything, "settings": vars(stage.settings), "versions": runs.versions()}
        storage.write_json(storage.join(stage.output, "manifest.json"), manifest)
    counts = {site.site: everything[site.site] for site in sites}
    for site, counted in counts.items():
        sums = {name: value for name, value in counted.items() if name != "files" and value}
        print(f"{site}: " + ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in sums.items()))
    print(f"archive: {stage.output}   peak memory of a task {peak:.0f} MB")
    return counts
