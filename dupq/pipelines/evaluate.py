"""The evaluation job: a whole archive ranked for its known duplicates, by an encoder and by the baselines.

Memory of its last task: a shard of texts and embeddings, those of the pairs that are scored, and the index of BM25,
some 4 kB a question.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.archive import pinned, question_shards
from dupq.encoders.saved import (
    FILES,
    encoder_at,
    read_description,
    read_development_links,
    read_measure,
    read_split,
)
from dupq.encoders.steps import check_room_to_encode, encode_texts
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import Seen, measure_known, usable
from dupq.evaluation.measures import TABLES, Scorer, left_out
from dupq.evaluation.rankers import BM25, SIZES, EncoderRanker, ShingleJaccard
from dupq.job.gpus import gpus_for, until_the_end
from dupq.job.inputs import content_of, encoder_content, input_files
from dupq.job.run import Run
from dupq.job.step import Counts
from dupq.job.tasks import run_tasks
from dupq.links import known_duplicates, read_lines
from dupq.pipelines.arguments import EvaluationJob, check_encoder_copy, is_pair_file
from dupq.runs import progress
from dupq.runs.question_tables import all_keys, read_embeddings
from dupq.runs.records import EVALUATION_VERSIONS, Encoding
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.tables import TEXTS
from dupq.text.keys import Sites
from dupq.text.steps import language_of_shards, make_distinct_texts

Made = TypeVar("Made")


def evaluate(job: EvaluationJob, checked: Settings | None = None) -> str:
    """Write metrics.json below `job.output`, with what `job.tables` name only; returns these tables as text.

    `checked` is what `job.check()` gave, if it was called before.
    """
    if job.encoder is not None:
        job = dataclasses.replace(job, encoder=encoder_at(job.encoder))
    settings = checked or job.check()
    found, sites = question_shards(job.questions)
    shards = pinned(found)
    if settings.text.language == "auto":  # without an encoder, which has one
        settings = config.in_language(settings, language_of_shards(shards)[0])
    inputs = {"questions": job.questions, "links": job.links, "encoder": job.encoder}
    made_from: dict[str, object] = {"questions": content_of(job.questions, shards)}
    copied, fingerprint = {}, ""
    if job.encoder is not None:
        copied["encoder"] = input_files(job.encoder, "encoder", FILES)
        fingerprint = read_description(job.encoder)["fingerprint"]
        made_from["encoder"] = encoder_content(fingerprint, copied["encoder"])
    output = storage.absolute(job.output)
    run = Run.open(storage.join(output, "work"), inputs, made_from, settings, EVALUATION_VERSIONS, copied)
    gpus, encoder, made_as = gpus_for(job.gpus if copied else 0), run.copy_of("encoder"), run.path("encoded_as.json")
    if encoder is not None and not run.has_record("encode"):
        check_room_to_encode(settings.encode, len(shards), made_as, gpus)
    with run.held(), until_the_end():
        if encoder is not None:
            run.stage("inputs", run.copy_inputs)
            check_encoder_copy(job, encoder, settings, fingerprint)
        texts = run.make("texts", make_distinct_texts, shards, sites, settings.text)
        embeddings, place = run.path("embeddings"), storage.join(output, "metrics.json")
        if encoder is not None:
            encoding = Encoding(texts.folder, "", encoder, None, made_as, embeddings)
            run.stage("encode", lambda: encode_texts(encoding, sites, settings.encode, gpus))
        archive = Archive(texts.folder, embeddings, encoder, sites.names, job.links, is_pair_file(job.links))
        run_tasks("measure", measure_archive, [(archive, settings, job.tables, place)])
        progress.end(run.uri, "finished")
    metrics = storage.read_json(place)
    return "\n\n".join([*(f"{name}: {TABLES[name](metrics)}" for name in job.tables), left_out(metrics)])


@dataclass(frozen=True)
class Archive:
    """The questions to rank, and the known duplicates to look up."""

    texts: str  # a folder with a file a shard, as `embeddings`
    embeddings: str
    encoder: str | None  # None: only the baselines are measured
    sites: list[str]
    links: str  # a table of links, or
    are_labelled: bool  # a file of labelled pairs


@dataclass(frozen=True)
class _Parts(Generic[Made]):
    """What `read` makes of each file of a folder, read again each time."""

    folder: str
    read: Callable[[str], Made]

    def __iter__(self) -> Iterator[Made]:
        return (self.read(file.uri) for file in storage.list_files(self.folder, ".parquet"))


def measure_archive(archive: Archive, settings: Settings, tables: tuple[str, ...], output: str) -> Counts:
    """Write the measures of `tables` as JSON. Runs as a task. Raises DupqError if there is nothing to measure."""
    sites, keys, encoder, others = Sites(archive.sites), all_keys(archive.texts), archive.encoder, None
    if archive.are_labelled:
        labels = usable(*read_lines(storage.read_bytes(archive.links), sites, archive.links), keys)
        links, others = labels.duplicates, labels.others
    else:
        links = known_duplicates(archive.links, sites)
    seen_before = None
    if encoder is not None:
        parts, tuned = read_split(encoder, sites), read_development_links(encoder, sites)
        seen_before = Seen(parts["train"], parts["development"], tuned, read_description(encoder)["pair_threshold"])
    known = measure_known(systems(archive, settings.text.language), keys, links, seen_before, settings, others, tables)
    if known is None:
        raise DupqError(f"{archive.links}: no known duplicates have both questions in the archive; nothing to measure")
    if not (known["test_queries"] if "retrieval" in tables else known["balanced_pairs"]["pairs"]):
        seen = known["left_out"]["train"] + known["left_out"]["development"]
        raise DupqError(
            f"{archive.links}: all {seen} questions with known duplicates were seen when the encoder was trained; "
            "nothing to measure. Give links or pairs that it has not seen"
        )
    if archive.are_labelled:
        known["labels"] = labels.counts
    storage.write_json(output, known)
    return {}


def systems(archive: Archive, language: str) -> dict[str, Scorer]:
    """Return the systems that are compared, by name: those that rank the archive first."""
    texts = _Parts(archive.texts, _read_texts)
    found: dict[str, Scorer] = {}
    if archive.encoder is not None:
        embedded = _Parts(archive.embeddings, lambda uri: read_embeddings(uri, Sites(archive.sites)))
        found["encoder"] = EncoderRanker(embedded, read_measure(archive.encoder))
    found["bm25"] = BM25(texts, language)
    return found | {f"shingle_jaccard_{size}": ShingleJaccard(texts, size) for size in SIZES}


def _read_texts(uri: str) -> tuple[np.ndarray, pa.StringArray]:
    table = storage.read_table(uri, TEXTS, ["key", "text"])
    return table["key"].to_numpy(), pa.concat_arrays([pa.array([], pa.string()), *table["text"].chunks])
