"""The training job, stage after stage: questions and links in, an encoder out.

questions     ──texts──▶      tokens
texts, links  ──prepare──▶    split by sets of known duplicates, word vectors
pairs         ──fit──▶        the network, by Ray Train
development   ──calibrate──▶  threshold, probability; the saved encoder
"""

from dataclasses import dataclass

from dupq import config, runs, storage
from dupq.encoders.description import saved_by
from dupq.errors import SettingError
from dupq.stages.calibration import calibrate
from dupq.stages.shards import link_files, question_shards
from dupq.stages.texts import make_texts
from dupq.stages.training import TrainingFiles, fit, prepare


@dataclass(frozen=True)
class TrainingJob:
    """What `jobs/train.py` was asked for. All are URIs but the preset's name."""

    questions: str
    links: str
    output: str
    preset: str = config.DEFAULT_PRESET
    assignments: tuple[str, ...] = ()
    workers: int = 1

    def check(self) -> config.Settings:
        """The settings; raises DupqError for what is wrong, before any work."""
        question_shards(self.questions)
        link_files(self.links)
        if self.workers < 1:
            raise SettingError(f"--workers {self.workers}: at least 1 expected")
        return config.load(self.preset, list(self.assignments))


def train(job: TrainingJob) -> runs.Run:
    """Train an encoder and save it at `job.output`; returns the run, whose records tell what was done.

    The same job over the same data goes on where an earlier attempt stopped. Raises DupqError if an input is
    missing or wrong.
    """
    settings = job.check()
    shards, sites = question_shards(job.questions)
    output = storage.absolute(job.output)
    inputs = {"questions": storage.absolute(job.questions), "links": storage.absolute(job.links)}
    made_from = {"questions": runs.content_of(job.questions), "links": runs.content_of(job.links)}
    run = runs.open_run(storage.join(output, "work"), inputs, made_from, settings)
    files = TrainingFiles(texts=run.path("texts"), links=job.links, work=run.uri, output=output)
    run.stage("texts", lambda: make_texts(shards, sites, settings.text, files.texts))
    run.stage("prepare", lambda: prepare(files, sites, settings))
    run.stage("fit", lambda: fit(files, sites, settings, job.workers))
    if saved_by(output) != run.run_id:
        storage.delete(run.path("stages", "calibrate.json"))
    run.stage("calibrate", lambda: calibrate(files, sites, settings, run.run_id))
    run.describe()
    storage.create(run.path("_SUCCESS"), b"")
    return run
