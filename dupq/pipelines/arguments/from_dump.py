"""The arguments of `dupq from-dump`."""

from dataclasses import dataclass

from dupq.dump.columns import BY_NAME, Columns
from dupq.evaluation.truth_files import check_truth
from dupq.pipelines.arguments.dedup import FREE_SECTIONS, check_prior, check_teacher
from dupq.pipelines.arguments.ingest import Checked, IngestJob
from dupq.pipelines.arguments.train import training_settings
from dupq.settings import config


@dataclass(frozen=True)
class FromDumpJob:
    """The arguments of `dupq from-dump`; dumps, output and truth are URIs."""

    dumps: tuple[str, ...]
    output: str
    preset: str = config.DEFAULT_PRESET
    truth: str | None = None
    assignments: tuple[str, ...] = ()
    gpus: int | None = None  # that training and dedup may take; None: those that the cluster has
    teacher: str | None = None  # of dedup
    site: str | None = None
    columns: Columns = BY_NAME  # of tables from elsewhere

    def check(self) -> Checked:
        """What there is to ingest; raises DupqError for what is wrong, before any work."""
        settings = config.load(self.preset, self.assignments)
        if self.truth is not None:
            check_truth(self.truth)
        check_teacher(self.teacher)
        checked = self.ingest_job().check()
        check_prior(settings.calibration.prior)
        from dupq.near_duplicates.band_choice import with_bands

        with_bands(settings.near_duplicates)
        training_settings(self.preset, self.settings_of("train"))
        return checked

    def ingest_job(self) -> IngestJob:
        """The first of the three jobs."""
        return IngestJob(self.dumps, self.output, self.site, self.columns, assignments=self.settings_of("ingest"))

    def settings_of(self, name: str) -> tuple[str, ...]:
        """The assignments for the job ingest, train or dedup."""
        return tuple(assignment for assignment in self.assignments if _job_of(assignment) == name)


def _job_of(assignment: str) -> str:
    section = assignment.partition(".")[0]
    return "ingest" if section == "ingest" else "dedup" if section in FREE_SECTIONS else "train"
