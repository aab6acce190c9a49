"""The shards of the questions and links tables, and how a run partitions pairs by key."""

import re
from typing import NamedTuple

import numpy as np

from dupq import storage
from dupq.errors import DupqError
from dupq.text.keys import Sites

_SITE = re.compile(r"(?:^|/)site=([^/]+)/")
_QUESTIONS_PER_PARTITION = 200_000


class Shard(NamedTuple):
    """One file of the questions table."""

    number: int
    uri: str
    site: str

    @property
    def file(self) -> str:
        """The name of every file that is made of this shard."""
        return f"part-{self.number:05d}.parquet"


def question_shards(uri: str) -> tuple[list[Shard], Sites]:
    """The shards of a questions table in the order of their paths, and its sites.

    Raises DupqError if there is nothing, or a file outside a `site=…` folder.
    """
    files = storage.list_files(uri, ".parquet")
    if not files:
        raise DupqError(f"{uri}: no question tables here (no .parquet file); make them with jobs/ingest.py")
    shards = [Shard(index, file.uri, _site_of(file.uri)) for index, file in enumerate(files)]
    return shards, Sites([shard.site for shard in shards])


def answer_shards(questions: str, sites: Sites) -> list[Shard]:
    """The shards of the answers that were ingested beside a questions table, of its sites only; none is fine."""
    folder = storage.join(storage.parent(storage.absolute(questions)), "answers")
    files = [file.uri for file in storage.list_files(folder, ".parquet")]
    known = [uri for uri in files if _site_of(uri) in sites.names]
    return [Shard(index, uri, _site_of(uri)) for index, uri in enumerate(known)]


def _site_of(uri: str) -> str:
    found = _SITE.findall(uri)
    if not found:
        raise DupqError(f"{uri}: is in no site=NAME folder, so its site is unknown")
    return found[-1]


def link_files(uri: str) -> list[tuple[str, str]]:
    """The files of a links table and their sites. Raises DupqError if there are none."""
    files = storage.list_files(uri, ".parquet")
    if not files:
        raise DupqError(f"{uri}: no link tables here (no .parquet file); make them with jobs/ingest.py")
    return [(file.uri, _site_of(file.uri)) for file in files]


def partitions(questions: int) -> int:
    """Into how many parts pairs are spread by their left key: one for 200,000 questions."""
    return max(1, -(-questions // _QUESTIONS_PER_PARTITION))


def partition_of(keys: np.ndarray, count: int) -> np.ndarray:
    """The part (0 to count - 1) of each key, evenly spread; the same key always goes to the same one."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(33)) % np.uint64(count)).astype(np.int64)
