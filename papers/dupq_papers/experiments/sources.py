"""Where the data sets of the experiments are read from, as JSON can hold it, and how a folder tells what it holds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dupq import storage
from dupq.archive import Shard, link_files, question_shards, read_shard
from dupq.encoders.saved import PARTS
from dupq.errors import DupqError
from dupq.links import known_duplicates, split_links
from dupq.settings.sections import TrainingSettings
from dupq.tables import QUESTIONS
from dupq.text.keys import Sites
from dupq_papers.data.text_files import read_text

_SITE = ".stackexchange.com"
_SAMPLE = 20_000  # characters that a language is told from
_ARABIC = range(0x0600, 0x0700)


@dataclass(frozen=True)
class Source:
    """A site of an ingested archive, or a folder with a pair set or with SemEval's files."""

    name: str
    kind: Literal["site", "questions", "pairs", "semeval"]
    files: tuple[str, ...]  # what is read: of a site the folders of its questions and links
    language: Literal["english", "arabic"]
    content: str  # the checksums of all that is read

    @property
    def has_bodies(self) -> bool:
        """Whether its questions have bodies."""
        return self.kind in ("site", "semeval")


class Archive(NamedTuple):
    """The sites that can be measured on, by their names, and what is said of those that cannot."""

    sources: list[Source]
    left_out: list[str]


def sites_of(questions: str, links: str) -> Archive:
    """The sites of an archive whose known duplicates fill each part of the split.

    Raises DupqError for a missing or damaged table.
    """
    shards, sites = question_shards(questions)
    found = Archive([], [])
    for site in sites.names:
        own = [shard for shard in shards if shard.site == site]
        name, known = site.removesuffix(_SITE), _known(own, site, links)
        if set(split_links(known, TrainingSettings()).parts) < set(PARTS):
            found.left_out.append(f"{name}: {len(known)} known duplicates, too few to split")
            continue
        files = [*(shard.uri for shard in own), *(uri for uri, of in link_files(links) if of == site)]
        folders = tuple(_folder_of(uri, site) for uri in (questions, links))
        found.sources.append(Source(name, "site", folders, "english", _checksums(files)))
    return found


def _known(shards: Sequence[Shard], site: str, links: str) -> np.ndarray:
    """The known duplicates of a site (int64, (m, 2)) whose questions are both there."""
    sites = Sites([site])
    keys = [
        sites.pack(site, read_shard(shard, QUESTIONS, ["question_id"])["question_id"].to_numpy(), shard.uri)
        for shard in shards
    ]
    found = known_duplicates(links, sites)
    return found[np.isin(found, np.concatenate(keys)).all(axis=1)]


def _folder_of(table: str, site: str) -> str:
    return table if f"site={site}" in table else storage.join(table, f"site={site}")


def folder_source(uri: str) -> Source:
    """A data set in a folder of its own, told by its files.

    questions.tsv (or .tsv.xz) and pairs.tsv: questions by ids, and labelled pairs of these; pairs.tsv alone: labelled
    pairs of texts; *.xml (or .xml.xz) and *.csv: SemEval Task 3, of which files with "dev" or "test" in their names
    are the test part. Raises DupqError for anything else.
    """
    there = {storage.name(file.uri): file.uri for file in storage.list_files(uri)}
    name = storage.name(uri)
    questions = next((there[one] for one in ("questions.tsv", "questions.tsv.xz") if one in there), None)
    if "pairs.tsv" in there:
        return _labelled(name, there["pairs.tsv"], questions)
    files = tuple(there[one] for one in sorted(there) if one.endswith((".xml", ".xml.xz", ".csv")))
    if not files:
        raise DupqError(
            f"--pair-set {uri}: no pairs.tsv, and no .xml or .csv of SemEval in it; docs/papers.md tells what is read"
        )
    if len(set(map(is_test_file, files))) < 2:
        missing = "training part (other names)" if is_test_file(files[0]) else 'test part (names with "dev" or "test")'
        raise DupqError(f"--pair-set {uri}: of SemEval's files those of the {missing} are missing")
    return Source(name, "semeval", files, "english", _checksums(files))


def is_test_file(uri: str) -> bool:
    """Whether a file of SemEval is of the part that is measured on."""
    name = storage.name(uri).lower()
    return "dev" in name or "test" in name


def _labelled(name: str, pairs: str, questions: str | None) -> Source:
    if questions is None:
        return Source(name, "pairs", (pairs,), _language(pairs), _checksums([pairs]))
    return Source(name, "questions", (questions, pairs), _language(questions), _checksums([questions, pairs]))


def _language(uri: str) -> Literal["english", "arabic"]:
    """Arabic if most letters of the beginning are, else English."""
    letters = [letter for letter in read_text(uri)[:_SAMPLE] if letter.isalpha()]
    arabic = sum(ord(letter) in _ARABIC for letter in letters)
    return "arabic" if 2 * arabic > len(letters) else "english"


def _checksums(files: Iterable[str]) -> str:
    return " ".join(storage.checksum(uri) for uri in files)
