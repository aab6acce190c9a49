"""The ingest job: dumps in, an archive's tables out."""

import logging

from dupq import storage
from dupq.archive import all_counts
from dupq.pipelines.arguments import Checked, IngestJob
from dupq.runs import writer
from dupq.stages.ingest.ingest import ingest as ingest_sites

_log = logging.getLogger(__name__)


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
