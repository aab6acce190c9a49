"""The ingest job: dumps in, an archive's tables out."""

from dataclasses import dataclass

from dupq import config, runs, storage
from dupq.dump.archives import DumpSite, find_sites
from dupq.errors import SettingError
from dupq.stages.ingest import counts_of
from dupq.stages.ingest import ingest as ingest_sites


@dataclass(frozen=True)
class IngestJob:
    """What `jobs/ingest.py` was asked for; dumps and output are URIs."""

    dumps: tuple[str, ...]
    output: str
    site: str | None = None
    assignments: tuple[str, ...] = ()

    def check(self) -> tuple[list[DumpSite], config.IngestSettings]:
        """The sites in the dumps and the settings; raises DupqError for what is wrong, before any work."""
        settings = config.load(assignments=list(self.assignments)).ingest
        if self.site is not None and len(self.dumps) > 1:
            raise SettingError("--site names one site, so give one --dump with it")
        sites = [site for dump in self.dumps for site in find_sites(storage.absolute(dump), self.site)]
        names = [site.site for site in sites]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SettingError(f"--dump: site {twice[0]} is in more than one of the dumps; give each once")
        return sorted(sites, key=lambda site: site.site), settings


def ingest(job: IngestJob) -> dict[str, dict[str, int]]:
    """Write the tables of all sites; returns what was counted for each, as manifest.json has it.

    Raises DupqError if a dump is missing, damaged or without questions, or has too many broken rows.
    """
    sites, settings = job.check()
    output = storage.absolute(job.output)
    report = ingest_sites(sites, settings, output)
    counts = {site.site: counts_of(output, site.site) for site in sites}
    for site, counted in counts.items():
        details = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counted.items() if value)
        print(f"{site}: {details}")
    manifest = {"sites": counts, "settings": vars(settings), "versions": runs.versions()}
    storage.write_json(storage.join(output, "manifest.json"), manifest)
    print(f"archive: {output}   peak memory of a task {report.peak_memory_mb:.0f} MB")
    return counts
