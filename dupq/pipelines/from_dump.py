"""From a dump to clusters: ingest, train and dedup, one after the other in one process and on one Ray."""

from dupq import storage
from dupq.pipelines.arguments import Checked, DedupJob, FromDumpJob, TrainingJob
from dupq.pipelines.dedup import dedup
from dupq.pipelines.ingest import ingest
from dupq.pipelines.train import train
from dupq.runs import log, writer


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
    given, settings = (questions, encoder, runs, known, job.truth), job.settings_of("dedup")
    return dedup(DedupJob(*given, assignments=settings, gpus=job.gpus, teacher=job.teacher))
