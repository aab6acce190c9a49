"""From a dump to clusters: ingest, train and dedup, one after the other in one process and on one Ray."""

from dataclasses import dataclass

from dupq import storage
from dupq.clusters.prior import read_prior
from dupq.evaluation.truth_files import check_truth
from dupq.near_duplicates.band_choice import with_bands
from dupq.pipelines.dedup import FREE_SECTIONS, DedupJob, dedup
from dupq.pipelines.ingest import Checked, IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train, training_settings
from dupq.runs import log, writer
from dupq.settings import config


@dataclass(frozen=True)
class FromDumpJob:
    """The arguments of `jobs/from_dump.py`; dumps, output and truth are URIs."""

    dumps: tuple[str, ...]
    output: str
    preset: str = config.DEFAULT_PRESET
    truth: str | None = None
    assignments: tuple[str, ...] = ()
    gpus: int | None = None  # that training and dedup may take; None: those that the cluster has

    def check(self) -> Checked:
        """What there is to ingest; raises DupqError for what is wrong, before any work."""
        training_settings(self.preset, self.settings_of("train"))
        settings = config.load(self.preset, self.assignments)
        with_bands(settings.near_duplicates)
        read_prior(settings.calibration.prior)
        if self.truth is not None:
            check_truth(self.truth)
        return self.ingest_job().check()

    def ingest_job(self) -> IngestJob:
        """The first of the three jobs."""
        return IngestJob(self.dumps, self.output, assignments=self.settings_of("ingest"))

    def settings_of(self, name: str) -> tuple[str, ...]:
        """The assignments for the job ingest, train or dedup."""
        return tuple(assignment for assignment in self.assignments if _job_of(assignment) == name)


def _job_of(assignment: str) -> str:
    section = assignment.partition(".")[0]
    return "ingest" if section == "ingest" else "dedup" if section in FREE_SECTIONS else "train"


def from_dump(job: FromDumpJob, checked: Checked | None = None) -> writer.Run:
    """Write the archive, an encoder and a run of it below `job.output`; returns the run.

    `checked` is what `job.check()` gave, if it was called before. What an earlier attempt finished is not done again.
    """
    ingest(job.ingest_job(), checked)
    questions, links, encoder = (storage.join(job.output, name) for name in ("questions", "links", "encoder"))
    known = links if storage.list_files(links, ".parquet") else None
    train(TrainingJob(questions, known, encoder, job.preset, job.settings_of("train"), gpus=job.gpus))
    log.leave()  # the training's run: what dedup's check says is not of it
    runs = storage.join(job.output, "runs")
    return dedup(
        DedupJob(questions, encoder, runs, known, job.truth, assignments=job.settings_of("dedup"), gpus=job.gpus)
    )
