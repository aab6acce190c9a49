"""A whole archive ranked for its known duplicates, by an encoder and by the baselines, in one task.

Memory: a shard of texts and embeddings, the texts and embeddings of the pairs that are scored, and the index of BM25,
some 4 kB a question.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from dupq import storage
from dupq.encoders.saved import read_description, read_development_links, read_measure, read_split
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import Seen, measure_known, usable
from dupq.evaluation.measures import Scorer
from dupq.evaluation.rankers import BM25, SIZES, EncoderRanker, ShingleJaccard
from dupq.job.table import Counts
from dupq.links import known_duplicates, read_lines
from dupq.runs.question_tables import all_keys, read_embeddings
from dupq.settings.config import Settings
from dupq.tables import TEXTS
from dupq.text.keys import Sites

T = TypeVar("T")


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
class _Parts(Generic[T]):
    """What `read` makes of each file of a folder, read again each time."""

    folder: str
    read: Callable[[str], T]

    def __iter__(self) -> Iterator[T]:
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
