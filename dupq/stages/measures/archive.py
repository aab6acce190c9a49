"""A whole archive ranked for its known duplicates, by an encoder and by the baselines.

Memory: four shards of texts and embeddings, the same of scored pairs, and the index of BM25, some 4 kB per
question.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dupq import kinds, storage
from dupq.encoders.saved import read_description, read_development_links, read_measure, read_split
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import Seen, measure_known, usable
from dupq.evaluation.measures import LinkMetrics, Scorer
from dupq.evaluation.rankers import BM25, SIZES, EncoderRanker, ShingleJaccard
from dupq.job.run import Run
from dupq.job.step import step
from dupq.job.table import Computed, Streamed, Table
from dupq.kinds import JSON, columns, streamed
from dupq.links import known_duplicates, read_pairs
from dupq.neighbours.embeddings import Embeddings, embeddings_of
from dupq.settings.config import Settings
from dupq.tables import KEYS, TEXTS
from dupq.text.keys import Sites, sorted_keys


@dataclass(frozen=True)
class Archive:
    """The questions to rank, and the known duplicates to look up."""

    texts: Table[kinds.Text]
    encoded: tuple[str, Table[kinds.Embedded]] | None  # an encoder, and its embeddings in the partitions of `texts`
    sites: Sites
    links: str  # a table of links, or a file of labelled pairs
    are_labelled: bool  # whether it is such a file


def measure_archive(run: str, archive: Archive, settings: Settings, tables: tuple[str, ...]) -> LinkMetrics:
    """Return the measures of `tables`, of the baselines alone if nothing is encoded.

    The run (URI) is the same for other links and tables, so these are measured each time. Raises DupqError if there is
    nothing to measure.
    """
    steps, texts = Run(run, "measure"), archive.texts
    storage.delete_folder(steps.folder)
    return steps.record("measure", measures_of)(Streamed(texts), Streamed(texts), archive, settings, tables)


@step(streamed(KEYS), streamed(columns(TEXTS, "key", "text")), makes=JSON)
def measures_of(
    keys: Iterable[pa.Table], texts: Iterable[pa.Table], archive: Archive, settings: Settings, tables: tuple[str, ...]
) -> LinkMetrics:
    """Return the measures of `tables`."""
    sites, archive_keys = archive.sites, sorted_keys(keys)
    labels = others = seen_before = None
    if archive.are_labelled:
        labels = usable(*read_pairs(storage.read_bytes(archive.links), sites, archive.links), archive_keys)
        links, others = labels.duplicates, labels.others
    else:
        links = known_duplicates(archive.links, sites)
    if archive.encoded is not None:
        encoder = archive.encoded[0]
        parts, tuned = read_split(encoder, sites), read_development_links(encoder, sites)
        seen_before = Seen(parts["train"], parts["development"], tuned, read_description(encoder)["pair_threshold"])
    compared = systems(texts, archive, settings.text.language)
    known = measure_known(compared, archive_keys, links, seen_before, settings, others, tables)
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
    return known


def systems(texts: Iterable[pa.Table], archive: Archive, language: str) -> dict[str, Scorer]:
    """Return the systems to compare by name, first those that rank the archive."""
    rankers: dict[str, Scorer] = {}
    if archive.encoded is not None:
        encoder, embeddings = archive.encoded
        read = Computed[Any](_read_embeddings, (embeddings, archive.sites), embeddings.partitions)
        rankers["encoder"] = EncoderRanker(Streamed(read), read_measure(encoder))
    rankers["bm25"] = BM25(texts, language)
    return rankers | {f"shingle_jaccard_{size}": ShingleJaccard(texts, size) for size in SIZES}


def _read_embeddings(embeddings: Table[kinds.Embedded], sites: Sites, partition: int) -> Embeddings:
    return embeddings_of(embeddings.read(partition), sites, embeddings.file(partition))
