"""Open the run of a job: pin the files that it reads, and name the run by their content.

An ingest, a training or another night may replace an input at any moment. So what `latest.json` names is resolved once,
shards are pinned, and the files that are read more than once are listed with their checksums, to be copied.
"""

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from dupq import storage
from dupq.archive import (
    Input,
    Shard,
    answer_shards,
    content_of,
    input_files,
    pinned,
    question_shards,
    read_shard_batches,
)
from dupq.encoders.saved import FILES, encoder_at, read_description, read_settings
from dupq.encoders.sentence_models import (
    DEFAULT,
    MULTILINGUAL,
    Reranker,
    default_reranker,
    files_of,
    model_fingerprint,
    model_folder,
    reranker_at,
)
from dupq.errors import DupqError
from dupq.evaluation.verdicts import Verdict, last_verdicts
from dupq.job.run import Run
from dupq.job.stage import Stage, versions_of
from dupq.pipelines.arguments import NO_RERANKER, DedupJob, EvaluationJob, TrainingJob
from dupq.runs.reader import Run as FinishedRun
from dupq.runs.reader import built_on, previous_run
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.stages.judge import ANSWERS, judge
from dupq.stages.rerank import rerank
from dupq.stages.scopes import make_scopes
from dupq.stages.texts import AT_ONCE
from dupq.tables import QUESTIONS
from dupq.text.keys import Sites
from dupq.text.languages import language_of, share_in
from dupq.training.start import base_fingerprint

_log = logging.getLogger(__name__)
_SITES_SHOWN = 3
_SHARDS = 32  # whose titles tell an archive's language
_LEAST_SHARE = 0.8  # of titles in one language; below it the archive is taken for one of several languages


@dataclass(frozen=True)
class Opened:
    """An opened run, and its inputs as they were then."""

    run: Run
    settings: Settings
    shards: tuple[Shard, ...]  # of the questions
    sites: Sites


@dataclass(frozen=True)
class OpenedDedup(Opened):
    """An opened nightly run."""

    job: DedupJob  # with the folders that its encoder and earlier run resolve to
    reranker: Reranker | None  # the run's copy of it
    read_sites: tuple[str, ...]  # whose language it reads
    verdicts: list[Verdict]  # the last one on each pair
    contradicted: int  # verdicts that a later one on the same pair replaced
    verdicts_calibrate: bool  # whether they calibrate what is known before a judge is asked


def open_dedup(job: DedupJob, checked: Settings | None, stages: Sequence[Stage[..., object]]) -> OpenedDedup:
    """Open the run of a nightly job with these stages. Raises DupqError if an input is missing or wrong."""
    job = dataclasses.replace(job, encoder=encoder_at(job.encoder), previous=previous_run(job.previous))
    settings = checked or job.check()
    shards, sites = question_shards(job.questions, job.skipped)
    shards = pinned(shards)
    encoder, description = _pinned_encoder(job, settings), read_description(job.encoder)
    optional = {"links": job.links, "truth": job.truth, "verdicts": job.verdicts, "prior": settings.calibration.prior}
    copied = {"encoder": encoder} | {name: input_files(uri, name) for name, uri in optional.items() if uri}
    reranker, read_sites = _reranker_of(job, shards)
    copied |= {"reranker": files_of(reranker, "reranker")} if reranker else {}
    verdicts, contradicted = last_verdicts(job.verdict_files(job.previous))
    made_from: dict[str, object] = {
        "encoder": _encoder_content(description["fingerprint"], encoder),
        "questions": content_of(job.questions, shards),
    }
    # People who saw a judge's answers chose pairs by them. That would bias a model that does not know these answers.
    answers = storage.join(storage.absolute(job.output), ANSWERS)
    were_judged = bool(settings.judge.url) or storage.kind(answers) == "folder"
    rest = {"skipped_shards": sorted(job.skipped), "judged": verdicts, "after_judge": were_judged and bool(verdicts)}
    rest |= {"reranker": reranker and reranker.fingerprint, "read_sites": read_sites}
    made_from |= {name: value for name, value in rest.items() if value}
    language = description["metrics"].get("language")  # in words, with how training determined it

    def run_of(job: DedupJob) -> Run:
        earlier = storage.name(job.previous) if job.previous else None  # cluster ids and changes depend on it
        is_called = {rerank: reranker, judge: settings.judge.url, make_scopes: settings.neighbours.has_scopes}
        left_out = [each for each, reason in is_called.items() if not reason]
        versions = versions_of(*(stage for stage in stages if stage not in left_out))
        uris = {"questions": job.questions, "links": job.links, "encoder": job.encoder, "truth": job.truth}
        uris |= {"previous": job.previous, "verdicts": job.verdicts}
        inputs = {name: storage.absolute(uri) if uri else None for name, uri in uris.items()} | {"language": language}
        inputs |= {"reranker": reranker.name} if reranker else {}
        inputs |= {"skipped_shards": ", ".join(job.skipped)} if job.skipped else {}
        inputs |= {"command": job.command} if job.command else {}
        run = Run.open(job.output, inputs, made_from | {"previous": earlier}, settings, versions, copied)
        run.previous = job.previous
        return run

    run = run_of(job)
    if job.previous is not None and not job.is_new:
        # A job that is repeated after its run became the latest finds its own run as the earlier one, and resumes it.
        original = dataclasses.replace(job, previous=built_on(job.previous))
        own = run_of(original)
        if own.uri == job.previous:
            job, run = original, own
    if reranker is not None:
        reranker = reranker._replace(folder=str(run.copy_of("reranker")))
    about = job, reranker, read_sites, verdicts, contradicted, not were_judged
    return OpenedDedup(run, settings, tuple(shards), sites, *about)


def _reranker_of(job: DedupJob, shards: Sequence[Shard]) -> tuple[Reranker | None, tuple[str, ...]]:
    """Return the reranker of a job, and the sites in a language that it reads; None and no site if there is none.

    Raises DupqError for a named one that is missing, and if the earlier run had one and this machine has not.
    """
    if job.reranker == NO_RERANKER:
        return None, ()
    reranker = default_reranker() if job.reranker is None else reranker_at(job.reranker, "--reranker ")
    if reranker is None:
        had = FinishedRun(job.previous).manifest["inputs"].get("reranker") if job.previous else None
        remedy = "pip install '.[reranker]' in dupq's checkout brings both"
        if had:
            raise DupqError(
                f"{job.previous}: this run had the reranker {had}, and {DEFAULT} or sentence-transformers is missing "
                f"here; {remedy}, and --reranker none goes on without"
            )
        _log.info(f"no reranker reads the likely pairs: {DEFAULT} or sentence-transformers is missing; {remedy}")
        return None, ()
    languages = languages_of_sites(shards)
    others = {site: language for site, language in languages.items() if not reranker.reads(language)}
    if others:
        shown = ", ".join(f"{site} ({language})" for site, language in sorted(others.items())[:_SITES_SHOWN])
        more = f" and {len(others) - _SITES_SHOWN} more" if len(others) > _SITES_SHOWN else ""
        _log.info(
            f"{shown}{more}: not read, as {reranker.name} reads English; --reranker {MULTILINGUAL} reads 50 languages"
        )
    read = tuple(sorted(languages.keys() - others.keys()))
    return (reranker, read) if read else (None, ())


@dataclass(frozen=True)
class OpenedTraining(Opened):
    """An opened training."""

    answers: list[Shard]
    language: str  # in words, with how it was determined


def open_training(job: TrainingJob, checked: Settings | None, stages: Sequence[Stage[..., object]]) -> OpenedTraining:
    """Open the run of a training, in the archive's language. Raises DupqError if an input is missing or wrong."""
    settings = checked or job.check()
    shards, sites = question_shards(job.questions)
    shards, vectors = pinned(shards), settings.word_vectors.file
    # only word vectors are learned from answers
    answers = [] if vectors else pinned(answer_shards(job.questions, sites))
    copied = {} if job.links is None else {"links": input_files(job.links, "links")}
    for number, uri in enumerate(job.pairs):
        copied[f"pairs-{number}"] = input_files(uri, f"pairs-{number}")
    settings, language = _with_language(settings, shards, job.assignments)
    inputs = {
        "language": language,
        "questions": storage.absolute(job.questions),
        "links": storage.absolute(job.links) if job.links is not None else None,
        "pairs": [storage.absolute(uri) for uri in job.pairs],
    }
    made_from: dict[str, object] = {
        "questions": content_of(job.questions, shards),
        "answers": [[shard.site, storage.checksum(shard.uri)] for shard in answers],
        "word_vectors": storage.checksum(vectors) if vectors else None,
        "start": None,  # the fingerprint of the encoder that training continues from
        "teacher": read_description(teacher)["fingerprint"] if (teacher := settings.teacher.encoder) else None,
    }
    if settings.word_vectors.goes_on:
        start = settings.word_vectors.start
        made_from["start"] = base_fingerprint() if start == "base" else read_description(start)["fingerprint"]
    if settings.encoder.kind == "sentence_transformers":
        model = str(settings.encoder.model_dump().get("model", ""))
        made_from["model"] = model_fingerprint(model_folder(model, f"encoder.model={model}"))
    work = storage.join(storage.absolute(job.output), "work")
    run = Run.open(work, inputs, made_from, settings, versions_of(*stages), copied)
    return OpenedTraining(run, settings, tuple(shards), sites, answers, language)


def _with_language(settings: Settings, shards: list[Shard], assignments: Sequence[str]) -> tuple[Settings, str]:
    """Return the settings with the archive's language, and that language in words, with how it was determined."""
    vectors, named = settings.word_vectors, settings.text.language
    if named != "auto":
        return settings, f"{named}, named by text.language"
    if vectors.goes_on and vectors.start != "base":
        started = read_settings(vectors.start).text.language
        how = f"{started}, as of the encoder that training goes on from"
        return config.in_language(settings, started, assignments), how
    language, in_words = language_of_shards(shards)
    return config.in_language(settings, language, assignments), in_words


def open_evaluation(job: EvaluationJob, checked: Settings | None, stages: Sequence[Stage[..., object]]) -> Opened:
    """Open the run of an evaluation, in the archive's language. Raises DupqError if an input is missing or wrong."""
    if job.encoder is not None:
        job = dataclasses.replace(job, encoder=encoder_at(job.encoder))
    settings = checked or job.check()
    shards, sites = question_shards(job.questions)
    shards = pinned(shards)
    inputs = {"questions": job.questions, "links": job.links, "encoder": job.encoder}
    made_from: dict[str, object] = {"questions": content_of(job.questions, shards)}
    copied = {}
    if job.encoder is not None:
        copied["encoder"] = _pinned_encoder(job, settings)
        made_from["encoder"] = _encoder_content(read_description(job.encoder)["fingerprint"], copied["encoder"])
    if settings.text.language == "auto":  # never with an encoder
        settings = config.in_language(settings, language_of_shards(shards)[0], job.assignments)
    work = storage.join(storage.absolute(job.output), "work")
    run = Run.open(work, inputs, made_from, settings, versions_of(*stages), copied)
    return Opened(run, settings, tuple(shards), sites)


def _pinned_encoder(job: DedupJob | EvaluationJob, checked: Settings) -> list[Input]:
    """Return the files of a job's encoder. Raises DupqError if it was replaced since its settings were checked."""
    assert job.encoder is not None
    files = input_files(job.encoder, "encoder", FILES)
    if job.settings() != checked:  # read after the checksums: copies that match these have these settings
        raise DupqError(f"{job.encoder}: {storage.CHANGED}")
    return files


def _encoder_content(fingerprint: str, files: Sequence[Input]) -> list[str]:
    """Return what identifies an encoder's answers. Its description also holds measures and times."""
    return [fingerprint, next(file.checksum for file in files if file.path.endswith("split.parquet"))]


def languages_of_sites(shards: Sequence[Shard]) -> dict[str, str]:
    """Return the language of most titles of each site: from the first titles of its first shard."""
    firsts = {shard.site: shard for shard in reversed(shards)}
    return {site: language_of(_first_titles([shard])) for site, shard in firsts.items()}


def language_of_shards(shards: Sequence[Shard]) -> tuple[str, str]:
    """Return the language of the archive and a sentence on how it was found: from the first titles of up to 32 shards.

    It is "other" if titles are in several languages, for the stems of one would be wrong for too many words.
    """
    titles = _first_titles(shards[:: -(-len(shards) // _SHARDS) or 1])
    most = language_of(titles)
    share = share_in(titles, most)
    language = most if share >= _LEAST_SHARE else "other"
    return language, f"{language}, detected: {share:.0%} of the titles are {most}"


def _first_titles(shards: Iterable[Shard]) -> pa.Array:
    titles = [pa.array([], pa.string())]
    for shard in shards:
        titles += [batch["title"] for batch in islice(read_shard_batches(shard, QUESTIONS, ["title"], AT_ONCE), 1)]
    return pa.concat_arrays(titles)
