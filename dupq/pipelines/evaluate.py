"""The evaluation job: rank a whole archive for its known duplicates, by an encoder and by the baselines.

Memory of its last task: four shards of texts and embeddings, those of the pairs that are scored, and the index of BM25,
some 4 kB per question.
"""

from dataclasses import dataclass

from dupq import storage
from dupq.encoders.saved import read_description, read_development_links, read_measure, read_split
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import Seen, measure_known, usable
from dupq.evaluation.measures import TABLES, Scorer, left_out
from dupq.evaluation.rankers import BM25, SIZES, EncoderRanker, ShingleJaccard
from dupq.job import progress
from dupq.job.gpus import gpus_for, until_the_end
from dupq.job.records import Encoding
from dupq.job.step import Counts
from dupq.job.table import Each, ReadWith, Table
from dupq.job.tasks import run_tasks
from dupq.links import known_duplicates, read_pairs
from dupq.neighbours.embeddings import Embeddings, embeddings_of
from dupq.pipelines.arguments import EvaluationJob, is_pair_file
from dupq.pipelines.opening import open_evaluation
from dupq.settings.config import Settings
from dupq.stages.embeddings import check_room_to_encode, encode_texts
from dupq.stages.texts import make_distinct_texts
from dupq.text.keys import Sites, sorted_keys


def evaluate(job: EvaluationJob, checked: Settings | None = None) -> str:
    """Write metrics.json below `job.output`, with only what `job.tables` names, and return these tables as text.

    `checked` is what `job.check()` returned, if it was called before. Raises DupqError if an input is missing or wrong.
    """
    opened = open_evaluation(job, checked)
    run, settings, sites = opened.run, opened.settings, opened.sites
    encoder, made_as, embeddings = run.copy_of("encoder"), run.path("encoded_as.json"), run.path("embeddings")
    gpus = gpus_for(0 if encoder is None else job.gpus)
    if encoder is not None and not run.has_record("encode"):
        check_room_to_encode(settings.encode, len(opened.shards), made_as, gpus)
    metrics_uri = storage.join(storage.absolute(job.output), "metrics.json")
    with run.held(), until_the_end():
        if encoder is not None:
            run.stage("inputs", run.copy_inputs)
        texts = run.make("texts", make_distinct_texts, opened.shards, sites, settings.text)
        if encoder is not None:
            encoding = Encoding(texts.folder, "", encoder, None, made_as, embeddings)
            run.stage("encode", lambda: encode_texts(encoding, sites, settings.encode, gpus))
        embedded = Table(embeddings, None, texts.partitions)
        archive = Archive(texts, embedded, encoder, sites.names, job.links)
        run_tasks("measure", measure_archive, [(archive, settings, job.tables, metrics_uri)])
        progress.end(run.uri, "finished")
    metrics = storage.read_json(metrics_uri)
    return "\n\n".join([*(f"{name}: {TABLES[name](metrics)}" for name in job.tables), left_out(metrics)])


@dataclass(frozen=True)
class Archive:
    """The questions to rank, and the known duplicates to look up."""

    texts: Table  # TEXTS
    embeddings: Table  # in the partitions of `texts`
    encoder: str | None  # None: only the baselines are measured
    sites: list[str]
    links: str  # a table of links, or a file of labelled pairs


def measure_archive(archive: Archive, settings: Settings, tables: tuple[str, ...], output: str) -> Counts:
    """Write the measures of `tables` as JSON. Runs as a task. Raises DupqError if there is nothing to measure."""
    sites, keys, encoder = Sites(archive.sites), sorted_keys(Each(archive.texts.only("key"))), archive.encoder
    labels = others = seen_before = None
    if is_pair_file(archive.links):
        labels = usable(*read_pairs(storage.read_bytes(archive.links), sites, archive.links), keys)
        links, others = labels.duplicates, labels.others
    else:
        links = known_duplicates(archive.links, sites)
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
    if labels is not None:
        known["labels"] = labels.counts
    storage.write_json(output, known)
    return {}


def systems(archive: Archive, language: str) -> dict[str, Scorer]:
    """Return the systems to compare by name, first those that rank the archive."""
    texts = Each(archive.texts.only("key", "text"))
    rankers: dict[str, Scorer] = {}
    if archive.encoder is not None:
        arguments = archive.embeddings, Sites(archive.sites)
        embedded = Each(ReadWith(_read_embeddings, arguments, archive.embeddings.partitions))
        rankers["encoder"] = EncoderRanker(embedded, read_measure(archive.encoder))
    rankers["bm25"] = BM25(texts, language)
    return rankers | {f"shingle_jaccard_{size}": ShingleJaccard(texts, size) for size in SIZES}


def _read_embeddings(embeddings: Table, sites: Sites, partition: int) -> Embeddings:
    return embeddings_of(embeddings.read(partition), sites, embeddings.file(partition))
