"""What a run of `dedup` is made from, which tells it from all others, and how one that is finished already ends."""

import contextlib
import dataclasses
import logging
from dataclasses import dataclass

from dupq import storage
from dupq.archive import Shard, pinned, question_shards
from dupq.encoders.saved import FILES, encoder_at, read_description
from dupq.encoders.sentence_models import Teacher, teacher_at
from dupq.errors import DupqError, LeaseError
from dupq.evaluation.sampling import Judged, judged
from dupq.evaluation.verdicts import VERDICTS_FILE, Verdict, format_verdicts, last_verdicts
from dupq.job.run_inputs import Input, copy_inputs, encoder_content, input_files
from dupq.job.table import Counts
from dupq.job.tasks import Report, run_tasks
from dupq.pipelines.arguments import DedupJob, check_gates
from dupq.report import page
from dupq.runs import inventory, progress, writer
from dupq.runs.reader import read_metrics
from dupq.settings.config import Settings
from dupq.text.keys import Sites

# The report stage: a run's tables → report.html.
#
# One task, as a driver should not hold what it does: a file of each table at a time, up to 4 million pairs (24 bytes
# each, see dupq/report/explorer_data.py), all of cluster_stats, about 80 bytes a cluster, and what the page shows.


def write_report(run: str) -> None:
    """Write the report into the run at `run`."""
    run_tasks("report", _write, [(run,)])


def _write(run: str) -> Counts:
    page.write(run)
    return {}


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """A run that is new or begun, and what it is made from, as it was when the run was opened."""

    run: writer.Run
    job: DedupJob
    settings: Settings
    shards: tuple[Shard, ...]  # of the questions
    sites: Sites
    inputs: dict[str, list[Input]]  # that are read more than once, and so from copies
    fingerprint: str  # of the encoder
    teacher: Teacher | None
    verdicts: list[Verdict]  # of each pair the last
    contradicted: int  # verdicts that a later one on the same pair replaced

    def copied(self, name: str) -> str | None:
        """Return where the copy of an input is; None if the job has none."""
        return self.run.path("work", "inputs", name) if name in self.inputs else None

    @property
    def judged(self) -> Judged:
        """The verdicts as keys."""
        return judged(self.verdicts, self.sites, VERDICTS_FILE)

    def copy(self) -> None:
        """Copy the inputs. Raises DupqError if the encoder has changed since the run was opened."""
        files = [file for of in self.inputs.values() for file in of]

        def work() -> Report:
            if self.verdicts:
                storage.write_bytes(self.run.path(VERDICTS_FILE), format_verdicts(self.verdicts).encode())
            return copy_inputs(files, self.run.path("work", "inputs"))

        self.run.stage("inputs", work)
        encoder = str(self.copied("encoder"))
        if read_description(encoder)["fingerprint"] != self.fingerprint or self.job.settings(encoder) != self.settings:
            raise DupqError(f"{self.job.encoder}: {storage.CHANGED}")

    def finish(self) -> None:
        """Describe the run, write its report, check its gates, and make it the latest one."""
        run = self.run
        run.describe()
        write_report(run.uri)
        check_gates(self.job.gates, read_metrics(run.uri), run.uri)
        run.succeed()
        if not self.settings.run.keep_work:
            inventory.tidy_at_end(run.uri)
        progress.end(run.uri, "finished")


def open_dedup(job: DedupJob, checked: Settings | None) -> Opened:
    """Open the run of a job. Raises DupqError if an input is missing or wrong."""
    # once: what latest.json names, of the encoder or of the runs, may be another one a moment later
    job = dataclasses.replace(job, encoder=encoder_at(job.encoder), previous=writer.previous_run(job.previous))
    settings, fingerprint = checked or job.check(), read_description(job.encoder)["fingerprint"]
    found, sites = question_shards(job.questions, job.skipped)
    shards = pinned(found)
    inputs = _copied_inputs(job, settings.calibration.prior)
    teacher = None if job.teacher is None else teacher_at(job.teacher, "--teacher ")
    verdicts, contradicted = last_verdicts(job.judged_in(job.previous))
    made_from = _made_from(job, shards, inputs, fingerprint)
    made_from |= {"teacher": teacher.fingerprint} if teacher else {}
    made_from |= {"judged": verdicts} if verdicts else {}
    job, run = _opened(job, made_from, settings)
    return Opened(run, job, settings, tuple(shards), sites, inputs, fingerprint, teacher, verdicts, contradicted)


def end_again(opened: Opened) -> None:
    """Do what a finished run lacks of its end, as its job was killed there; if it lacks nothing, no lease is taken."""
    run, job = opened.run, opened.job
    _log.info(f"run {run.run_id} is finished already")
    if not storage.exists(run.path("report.html")):
        with run.held():
            write_report(run.uri)
    check_gates(job.gates, read_metrics(run.uri), run.uri, has_succeeded=True)
    if run.is_to_be_latest:
        with run.held():
            run.point_latest()
    if not opened.settings.run.keep_work and inventory.tidy_at_end(run.uri, really=False):
        with contextlib.suppress(LeaseError), run.held():  # who has it is at the end of the same run, and tidies too
            inventory.tidy_at_end(run.uri)


def _opened(job: DedupJob, made_from: dict[str, object], settings: Settings) -> tuple[DedupJob, writer.Run]:
    """The run of the job. If the run that it shall build on was this job's own attempt, that one, as it was begun.

    So a job that is started again after its run became the latest one, which it names as the earlier run, makes no
    other run.
    """

    def run_of(job: DedupJob) -> writer.Run:
        earlier = storage.name(job.previous) if job.previous else None  # ids and changes are made from it
        stages = writer.DEDUP_VERSIONS | (writer.TEACHER_VERSIONS if job.teacher else {})
        return writer.open_run(job.output, _inputs(job), made_from | {"previous": earlier}, settings, stages)

    if job.previous is not None:
        before = dataclasses.replace(job, previous=writer.built_on(job.previous))
        own = run_of(before)
        if own.uri == job.previous:
            return before, own
    return job, run_of(job)


def _inputs(job: DedupJob) -> dict[str, str | None]:
    named = {"questions": job.questions, "links": job.links, "encoder": job.encoder, "truth": job.truth}
    named |= {"previous": job.previous, "verdicts": job.verdicts}
    inputs = {name: storage.absolute(uri) if uri else None for name, uri in named.items()}
    inputs |= {"teacher": job.teacher} if job.teacher else {}
    inputs["language"] = read_description(job.encoder)["metrics"].get("language")  # and how training knew it
    return inputs | ({"skipped_shards": ", ".join(job.skipped)} if job.skipped else {})


def _copied_inputs(job: DedupJob, prior: str) -> dict[str, list[Input]]:
    """What is read more than once, and so from copies."""
    given = {"links": job.links, "truth": job.truth, "verdicts": job.verdicts, "prior": prior}
    encoder = {"encoder": input_files(job.encoder, "encoder", FILES)}
    return encoder | {name: input_files(uri, name) for name, uri in given.items() if uri}


def _made_from(
    job: DedupJob, shards: list[Shard], inputs: dict[str, list[Input]], fingerprint: str
) -> dict[str, object]:
    """What tells this run's inputs from others', but for the earlier run."""
    copied = {name: [[file.path, file.checksum] for file in files] for name, files in inputs.items()}
    skipped = {"skipped_shards": sorted(job.skipped)} if job.skipped else {}
    return {
        **copied,
        **skipped,
        "encoder": encoder_content(fingerprint, inputs["encoder"]),
        "questions": writer.content_of(job.questions, shards),
    }
