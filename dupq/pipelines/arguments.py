"""The arguments of each job, and the checks of them before Ray is imported and any work begins."""

import os
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dupq import storage
from dupq.archive import (
    TEXT_COLUMNS,
    all_counts,
    check_links,
    check_questions,
    check_sites,
    has_values,
    in_scope,
    question_shards,
)
from dupq.dump.files import BY_NAME, Columns
from dupq.encoders.saved import encoder_at, load, load_reader, read_settings, read_split
from dupq.errors import DupqError, SettingError
from dupq.evaluation.measures import TABLES
from dupq.evaluation.verdicts import VERDICTS_FILE, last_verdicts, planted_keys, read_truth
from dupq.job.records import check_output
from dupq.judging.client import KEYS, is_loopback, key_from_environment
from dupq.links import check_pairs
from dupq.pipelines.gates import NO_GATES, Gates
from dupq.runs.reader import Run as FinishedRun
from dupq.runs.reader import check_earlier, previous_run
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import JudgeSettings
from dupq.system import require
from dupq.text.keys import Sites

if TYPE_CHECKING:
    from dupq.dump.reading import Ingest
    from dupq.dump.sites import FoundSites

FREE_SECTIONS = ("near_duplicates", "encode", "neighbours", "calibration", "reranker", "judge", "clusters", "run")
# near_duplicates: what hard negatives must not be; encode: batches of the development measure
_TRAINING_READS = ("text", "near_duplicates", "word_vectors", "encoder", "title_body", "teacher", "training", "encode")
NO_RERANKER = "none"
_NOT_READ = "not read by this job"
_COLUMN = re.compile(r"--[a-z]+ COLUMN")  # an option that an error advises
_FREE_TO_MEASURE = ("encode",)  # with an encoder, which fixes how texts are read
_BASELINES_READ = ("text", "training")  # training: how the questions are split
_COLUMNS_READ = (*TEXT_COLUMNS, *("tags", "creation_date", "score", "view_count", "answer_count", "accepted_answer_id"))
_WRITTEN = (
    *("questions/site=", "answers/site=", "links/site=", "ids/site=", "rejects/site="),
    *("ingest/", "_parts/", "manifest.json", "encoder/", "runs/"),
)


class Checked(NamedTuple):
    """An ingest that can begin: the sites in its dumps, and how they are ingested."""

    dumps: "FoundSites"
    ingest: "Ingest"


@dataclass(frozen=True)
class IngestJob:
    """The arguments of `dupq ingest`; dumps and output are URIs."""

    dumps: tuple[str, ...]
    output: str
    site: str | None = None
    columns: Columns = BY_NAME
    answers: bool = False
    assignments: tuple[str, ...] = ()
    command: str = ""  # as the user gave it

    def check(self) -> Checked:
        """Return what there is to ingest. Raises DupqError for a wrong argument, dump or setting."""
        from dupq.dump.reading import Ingest, check_columns
        from dupq.dump.sites import find_sites

        check_output(self.output)
        settings = config.assign_free(Settings(), self.assignments, ("ingest",), _NOT_READ).ingest
        dumps, output = [storage.absolute(dump) for dump in self.dumps], storage.absolute(self.output)
        all_counts(output)  # raises for a damaged record
        # what the job itself writes is not a dump: the whole output, or if a dump is below it the job's own folders
        has_dumps = any(f"{dump}/".startswith(f"{output}/") for dump in dumps)
        own = [storage.join(output, name) for name in _WRITTEN] if has_dumps else [f"{output}/"]
        found = find_sites(dumps, self.site, self.columns != BY_NAME, own)
        try:
            sites = [check_columns(site, self.columns) for site in found.sites]
        except DupqError as error:
            option = _COLUMN.search(str(error))
            raise DupqError(f"{error}{self.again(option[0])}" if option else str(error)) from error
        return Checked(found._replace(sites=sites), Ingest(output, settings, self.answers, self.columns))

    def again(self, option: str) -> str:
        """Return the user's command with one more option, as the end of a line."""
        by_make = f"; for make: OPTIONS={shlex.quote(option)}" if "MAKELEVEL" in os.environ else ""
        return f", that is: {self.command} {option}{by_make}" if self.command else ""


@dataclass(frozen=True)
class TrainingJob:
    """The arguments of `dupq train`; questions, links, output and pairs are URIs."""

    questions: str
    links: str | None
    output: str
    preset: str = config.DEFAULT_PRESET
    assignments: tuple[str, ...] = ()
    workers: int = 1
    pairs: tuple[str, ...] = ()
    gpus: int | None = None  # at most; None: all of the cluster's

    def check(self) -> Settings:
        """Return the settings. Raises DupqError for a wrong argument, input or setting."""
        # first, as checking the inputs takes longer
        config.assign_free(config.load(self.preset), self.assignments, _TRAINING_READS, _NOT_READ)
        check_output(self.output)
        sites, questions = check_questions(self.questions)
        if not questions:
            raise DupqError(f"{self.questions}: no questions in the tables; nothing to learn from")
        links = 0 if self.links is None else check_links(self.links)
        for uri in self.pairs:
            check_pairs(uri, sites)
        if self.workers < 1:
            raise SettingError(f"--workers {self.workers}: at least 1 expected")
        if self.gpus and self.gpus < self.workers:
            raise SettingError(
                f"--gpus {self.gpus}: each of {self.workers} workers takes one, or none does (--gpus none)"
            )
        settings = training_settings(self.preset, self.assignments)
        from dupq.encoders.encoding import learns_without_links, presets_without_links

        if not links and not self.pairs and not learns_without_links(settings):
            missing = "neither --links nor --pairs" if self.links is None else f"{self.links}: no links in the tables"
            raise SettingError(
                f"{missing}: preset {self.preset} learns from known duplicates only; give some, or take one of the "
                f"presets {', '.join(presets_without_links())}"
            )
        if settings.teacher.encoder:
            load(settings.teacher.encoder)
        return settings


def training_settings(preset: str, assignments: tuple[str, ...]) -> Settings:
    """Return a preset changed by assignments, with absolute paths.

    Raises DupqError for a wrong setting, and for a file that a setting names and that is missing or damaged.
    """
    settings = config.assign_free(config.load(preset), assignments, _TRAINING_READS, _NOT_READ)
    if settings.text.language != "auto":
        settings = config.in_language(settings, settings.text.language, assignments)
    vectors, teacher = settings.word_vectors, settings.teacher
    if vectors.algorithm == "teacher" and not teacher.encoder:
        raise SettingError("setting 'teacher.encoder' is empty; word_vectors.algorithm=teacher needs a saved encoder")
    if teacher.encoder:
        teacher = teacher.changed(encoder=encoder_at(teacher.encoder))
        read_settings(teacher.encoder)
    if vectors.file:
        if storage.kind(vectors.file) != "file":
            raise DupqError(f"word_vectors.file={vectors.file}: no such file")
        vectors = vectors.changed(file=storage.absolute(vectors.file))
    if vectors.goes_on and vectors.start != "base":
        vectors = vectors.changed(start=encoder_at(vectors.start))
    from dupq.encoders.encoding import network_settings  # loads torch

    network = network_settings(settings.encoder).resolved().to_section()
    settings = settings.changed(word_vectors=vectors, teacher=teacher, encoder=network)
    if vectors.goes_on:
        from dupq.training.start import check_start

        check_start(settings)
    return settings


@dataclass(frozen=True)
class DedupJob:
    """The arguments of `dupq dedup`; inputs and output are URIs."""

    questions: str
    encoder: str
    output: str
    links: str | None = None
    truth: str | None = None
    previous: str | None = None  # an earlier run, or the folder of runs
    assignments: tuple[str, ...] = ()
    verdicts: str | None = None  # a filled-in review.tsv or worklist.tsv
    gates: Gates = NO_GATES
    skipped: tuple[str, ...] = ()  # question shards to leave out, by their paths below `questions`
    gpus: int | None = None  # at most; None: all of the cluster's
    reranker: str | None = None  # a sentence-transformers model, or "none"; None: the default one if it is installed
    is_new: bool = False  # whether it makes a run of its own, although the earlier run was made from the same inputs
    command: str = ""  # as the user gave it

    def check(self) -> Settings:
        """Return the settings. Raises DupqError for a wrong argument, input or setting."""
        self.gates.check(self.previous is not None)
        check_output(self.output)
        sites, _ = check_questions(self.questions, _COLUMNS_READ, self.skipped)
        if self.links is not None:
            check_links(self.links)
        if self.truth is not None:
            planted_keys(self.truth, sites)
        earlier = previous_run(self.previous)
        if earlier is not None:
            check_earlier(earlier)
        last_verdicts(self.verdict_files(earlier))
        if self.verdicts is not None:
            from dupq.runs.queries import estimated

            estimated(self.verdicts, self.output)  # raises if the run that drew them is damaged
        settings = self.settings()
        if settings.neighbours.sites:
            in_scope(question_shards(self.questions, self.skipped)[0], settings.neighbours.sites)
        check_free_settings(settings)
        check_compared(settings, self.questions, self.skipped)
        check_reranker(self.reranker)
        check_judge(settings.judge, self.gates.judge)
        check_encoder(self.encoder, sites)
        return settings

    def verdict_files(self, earlier: str | None) -> list[str]:
        """Return the files of verdicts that the run reads, the latest one last; `earlier` is the run before."""
        folders = (earlier, storage.absolute(self.output))
        kept = [storage.join(folder, VERDICTS_FILE) for folder in folders if folder]
        return [uri for uri in kept if storage.exists(uri)] + ([self.verdicts] if self.verdicts else [])

    def settings(self) -> Settings:
        """Return the settings that the encoder was trained with, changed in the sections that a run may change."""
        free = {section: getattr(Settings(), section) for section in FREE_SECTIONS}
        return config.assign_free(read_settings(self.encoder).changed(**free), self.assignments, FREE_SECTIONS)


def check_free_settings(settings: Settings) -> None:
    """Raise SettingError if no bands fit near_duplicates.threshold, DupqError for a wrong file in calibration.prior."""
    from dupq.near_duplicates.minhash import bands_of

    bands_of(settings.near_duplicates)
    if settings.calibration.prior:
        from dupq.clusters.calibration import read_prior

        read_prior(settings.calibration.prior)


def check_compared(settings: Settings, questions: str, skipped: tuple[str, ...] = ()) -> None:
    """Raise SettingError if no question has what settings compare: a date, or a value of the scope."""
    scope = settings.neighbours.scope
    needed = {"--window": "creation_date"} if settings.neighbours.window else {}
    needed |= {"--earlier": "creation_date"} if settings.clusters.earlier else {}
    needed |= {f"--scope {scope}": {"column": "scope"}.get(scope, scope)} if scope not in ("all", "site") else {}
    shards = question_shards(questions, skipped)[0] if needed else []
    for option, column in needed.items():
        if shards and not has_values([shard.uri for shard in shards], column):
            raise SettingError(f"{option}: no question in {questions} has a {column.replace('_', ' ')}")


def check_reranker(name: str | None) -> None:
    """Raise DupqError for a reranker that is named, but missing or not readable."""
    if name not in (None, NO_RERANKER):
        from dupq.encoders.sentence_models import reranker_at

        reranker_at(str(name), "--reranker ")


def check_judge(judge: JudgeSettings, is_required: bool) -> None:
    """Raise DupqError for a judge that cannot be asked, or that might cost more than anybody has agreed to."""
    if not judge.url:
        if judge.model or is_required:
            option = "--judge-required" if is_required else f"judge.model={judge.model}"
            raise SettingError(f"{option}: no address; name the endpoint with --judge URL")
        return
    if not judge.url.startswith(("http://", "https://")):
        raise SettingError(f"--judge {judge.url}: the address of an endpoint expected, like http://localhost:11434/v1")
    if not judge.model:
        raise SettingError(f"--judge {judge.url}: which model? Name it with --judge-model")
    if not is_loopback(judge.url):
        if judge.dollars and not (judge.price_in or judge.price_out):
            raise SettingError(
                f"--judge-budget {judge.dollars:g}: dupq does not know the prices; set judge.price_in and "
                "judge.price_out (dollars per million tokens), or limit tokens by --judge-tokens"
            )
        if not (judge.dollars or judge.tokens):
            raise SettingError(
                f"--judge {judge.url}: every call there may cost money; limit it by --judge-tokens, or by "
                "--judge-budget with judge.price_in and judge.price_out"
            )
        if is_required and not key_from_environment():
            raise SettingError(f"--judge-required: no key for {judge.url}; set {KEYS[0]} or {KEYS[1]}")
    require("openai", "--judge")


def with_judge(
    run: FinishedRun, output: str, assignments: tuple[str, ...], gates: Gates, gpus: int | None = None
) -> DedupJob:
    """Return the job that makes a run like a finished one, on which it builds, but with these assignments."""
    inputs, usual = run.manifest["inputs"], Settings()
    free = {name: getattr(run.settings, name) for name in FREE_SECTIONS}
    changed = [
        f"{section}.{name}={','.join(value) if isinstance(value, tuple) else value}"
        for section, values in free.items()
        for name, value in values
        if value != getattr(getattr(usual, section), name)
    ]
    named: dict[str, Any] = {name: inputs.get(name) for name in ("questions", "encoder", "links", "truth")}
    skipped = tuple(name for name in str(inputs.get("skipped_shards") or "").split(", ") if name)
    return DedupJob(
        **named,
        output=output,
        previous=run.uri,
        assignments=(*changed, *assignments),
        skipped=skipped,
        reranker=str(inputs.get("reranker") or NO_RERANKER),
        gates=gates,
        gpus=gpus,
        is_new=True,
        command=inputs.get("command") or "",
    )


@dataclass(frozen=True)
class EvaluationJob:
    """The arguments of `dupq evaluate`; inputs and output are URIs."""

    questions: str
    links: str  # a table of links, or a file of labelled pairs
    output: str
    encoder: str | None = None
    tables: tuple[str, ...] = tuple(TABLES)  # to measure
    assignments: tuple[str, ...] = ()
    gpus: int | None = None  # at most, to encode; None: all of the cluster's

    def check(self) -> Settings:
        """Return the settings. Raises DupqError for a wrong argument, input or setting."""
        check_output(self.output)
        unknown = [name for name in self.tables if name not in TABLES]
        if unknown or not self.tables:
            raise SettingError(f"--table {', '.join(unknown)}: no such table; there are {', '.join(TABLES)}")
        sites, questions = check_questions(self.questions)
        if not questions:
            raise DupqError(f"{self.questions}: no questions in the tables; nothing to measure")
        if is_pair_file(self.links):
            check_pairs(self.links, sites)
        else:
            check_links(self.links)
        if self.encoder is None:
            return config.assign_free(config.load(), self.assignments, _BASELINES_READ, "not read without an encoder")
        settings = self.settings()
        check_encoder(self.encoder, sites)
        return settings

    def settings(self) -> Settings:
        """Return the settings that the encoder was trained with, changed in the sections that measure."""
        assert self.encoder is not None
        return config.assign_free(read_settings(self.encoder), self.assignments, _FREE_TO_MEASURE)


def is_pair_file(links: str) -> bool:
    """Return whether `links` is a file of labelled pairs, not a table."""
    return storage.kind(links) == "file" and not links.endswith(".parquet")


@dataclass(frozen=True)
class FromDumpJob:
    """The arguments of `dupq from-dump`; dumps, output and inputs of `dedup` are URIs."""

    dumps: tuple[str, ...]
    output: str
    preset: str = config.DEFAULT_PRESET
    truth: str | None = None
    assignments: tuple[str, ...] = ()
    gpus: int | None = None  # at most, in training and dedup; None: all of the cluster's
    reranker: str | None = None  # of dedup
    site: str | None = None
    columns: Columns = BY_NAME  # of tables from elsewhere
    gates: Gates = NO_GATES  # of dedup
    links: str | None = None  # None: the dump's own
    verdicts: str | None = None
    previous: str | None = None
    command: str = ""  # as the user gave it

    def check(self) -> Checked:
        """Return what there is to ingest. Raises DupqError for a wrong argument, dump or setting of any of the jobs."""
        read = (*_TRAINING_READS, *FREE_SECTIONS, "ingest")
        settings = config.assign_free(config.load(self.preset), self.assignments, read, "not read by these jobs")
        if self.truth is not None:
            read_truth(self.truth)  # raises for a wrong line
        if self.links is not None:
            check_links(self.links)
        if earlier := previous_run(self.previous):
            check_earlier(earlier)
        last_verdicts([self.verdicts] if self.verdicts else [])
        check_reranker(self.reranker)
        check_judge(settings.judge, self.gates.judge)
        checked = self.ingest_job().check()
        known = {site.site for site in checked.dumps.sites} | all_counts(storage.absolute(self.output)).keys()
        check_sites(settings.neighbours.sites, known)
        check_free_settings(settings)
        training_settings(self.preset, self.settings_of("train"))
        return checked

    def ingest_job(self) -> IngestJob:
        """Return the first of the three jobs."""
        settings = self.settings_of("ingest")
        return IngestJob(self.dumps, self.output, self.site, self.columns, False, settings, self.command)

    def settings_of(self, name: str) -> tuple[str, ...]:
        """Return the assignments for the job `name`: ingest, train or dedup."""
        read = {"ingest": ("ingest",), "train": _TRAINING_READS, "dedup": FREE_SECTIONS}[name]
        return tuple(text for text in self.assignments if text.partition(".")[0] in read)


def check_encoder(encoder: str, sites: Sites) -> None:
    """Raise DupqError for an encoder that is missing, damaged, or has weights that are not finite."""
    load_reader(encoder)  # without torch, if it is dupq's own kind
    read_split(encoder, sites)
