"""The arguments of `dupq dedup`."""

from dataclasses import dataclass

from dupq import storage
from dupq.encoders.description import read_settings
from dupq.evaluation.truth_files import planted_keys
from dupq.evaluation.verdicts import VERDICTS_FILE, last_verdicts
from dupq.pipelines.arguments.encoder import check_encoder
from dupq.pipelines.gates import NO_GATES, Gates
from dupq.runs import writer
from dupq.runs.reader import check_earlier
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.shards import TEXT_COLUMNS, check_links, check_questions, question_shards
from dupq.stages.neighbours.plan import in_scope

FREE_SECTIONS = ("near_duplicates", "encode", "neighbours", "calibration", "clusters", "evaluation", "run")
_COLUMNS_READ = (
    *TEXT_COLUMNS,
    *("tags", "creation_date", "score", "view_count", "answer_count", "accepted_answer_id"),
)


@dataclass(frozen=True)
class DedupJob:
    """The arguments of `dupq dedup`. Those that are None by default may be missing."""

    questions: str
    encoder: str
    output: str
    links: str | None = None
    truth: str | None = None
    previous: str | None = None  # an earlier run, or the folder of runs
    assignments: tuple[str, ...] = ()
    verdicts: str | None = None  # a filled-in review.tsv or worklist.tsv
    gates: Gates = NO_GATES
    skipped: tuple[str, ...] = ()  # paths of question shards below `questions` that are left out
    gpus: int | None = None  # that may be taken; None: those that the cluster has
    teacher: str | None = None  # a sentence-transformers model: folder, package, or name on the hub

    def check(self) -> Settings:
        """The settings; raises DupqError for what is wrong, before any work."""
        self.gates.check(self.previous is not None)
        writer.check_output(self.output)
        sites, _ = check_questions(self.questions, _COLUMNS_READ, self.skipped)
        if self.links is not None:
            check_links(self.links)
        if self.truth is not None:
            planted_keys(self.truth, sites)
        earlier = writer.previous_run(self.previous)
        if earlier is not None:
            check_earlier(earlier)
        last_verdicts(self.judged_in(earlier))
        if self.verdicts is not None:
            _check_sample(self.verdicts, self.output)
        settings = self.settings(self.encoder)
        if settings.neighbours.sites:
            in_scope(question_shards(self.questions, self.skipped)[0], settings.neighbours)
        check_prior(settings.calibration.prior)
        check_teacher(self.teacher)
        check_encoder(self.encoder, sites)
        return settings

    def judged_in(self, earlier: str | None) -> list[str]:
        """The files of verdicts that the run reads, the last one last; `earlier` is the run before."""
        kept = [storage.join(folder, VERDICTS_FILE) for folder in (earlier, storage.absolute(self.output)) if folder]
        return [uri for uri in kept if storage.exists(uri)] + ([self.verdicts] if self.verdicts else [])

    def settings(self, encoder: str) -> Settings:
        """The settings of a run with the encoder at `encoder`."""
        return run_settings(read_settings(encoder), self.assignments)


def _check_sample(verdicts: str, runs: str) -> None:
    """Raise DupqError for a damaged run that drew the pairs of these verdicts."""
    from dupq.runs.sample import estimated

    estimated(verdicts, runs)


def check_prior(uri: str) -> None:
    """Raise DupqError for a prior that cannot be read."""
    from dupq.clusters.prior import read_prior

    read_prior(uri)


def check_teacher(name: str | None) -> None:
    """Raise DupqError for a teacher that is missing or cannot be read."""
    if name is not None:
        from dupq.encoders.sentence_models import teacher_at

        teacher_at(name, "--teacher ")


def run_settings(trained: Settings, assignments: tuple[str, ...]) -> Settings:
    """The settings that the encoder was trained with, changed where a run is free to."""
    free = {section: getattr(Settings(), section) for section in FREE_SECTIONS}
    settings = config.assign_to_trained(trained.changed(**free), assignments, FREE_SECTIONS)
    from dupq.near_duplicates.band_choice import bands_of

    bands_of(settings.near_duplicates)  # there are some
    return settings
