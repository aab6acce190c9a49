"""How the near-duplicate stages are cut into tasks of bounded memory, whatever the size of the archive.

The cuts depend only on the shards and their numbers of rows, not on the number of workers. The pairs found do not
depend on the cuts.

Every task of a step reads a piece of the file of every task of the step before: requests are the product of both
numbers. So pieces grow with the archive, from that of a small one to four times as much.
"""

from typing import NamedTuple

from dupq import storage

_QUESTIONS_PER_BUNDLE = 50_000
_HASHES_PER_PART = 1_000_000  # 24 bytes each
_BAND_KEYS_PER_PART = 1_000_000  # 24 bytes each
_BAND_KEYS_PER_TASK = 2_000_000
_QUESTIONS_PER_SLICE = 50_000
_MOST_PIECES = 240  # wanted of each kind at most: 12 million questions in pieces as above
_GROWTH = 4  # of a piece at most, as a task holds it


class Bundle(NamedTuple):
    """The files of texts that one task takes: one large shard, or some small ones."""

    number: int
    texts: tuple[str, ...]
    questions: int

    @property
    def name(self) -> str:
        """Its files, for errors."""
        return self.texts[0] if len(self.texts) == 1 else f"{self.texts[0]} to {storage.name(self.texts[-1])}"


class Cuts(NamedTuple):
    """The numbers of parts that exchanged rows are spread over."""

    bundles: int
    questions: int
    hash_parts: int  # of the text hashes
    band_parts: int  # of the keys of each band
    slices: int  # of the candidate pairs, by their left key; slice s belongs to part s modulo `parts`
    parts: int  # of all pairs, by their left key, for the stages that follow


def bundles_of(folder: str) -> list[Bundle]:
    """The texts of a run in the order of their files, bundled."""
    bundles: list[Bundle] = []
    waiting: list[str] = []
    questions = 0
    files = {file.uri: storage.read_counts(file.uri)["rows_out"] for file in storage.list_files(folder, ".parquet")}
    enough = _grown(_QUESTIONS_PER_BUNDLE, sum(files.values()))
    for place, (uri, rows) in enumerate(files.items(), 1):
        waiting.append(uri)
        questions += rows
        if questions >= enough or place == len(files):
            bundles.append(Bundle(len(bundles), tuple(waiting), questions))
            waiting, questions = [], 0
    return bundles


def cuts_of(bundles: list[Bundle], parts: int) -> Cuts:
    """The spread of what these bundles give; `parts` is the number that later stages use for pairs."""
    questions = sum(bundle.questions for bundle in bundles)
    return Cuts(
        bundles=len(bundles),
        questions=questions,
        hash_parts=max(1, -(-questions // _HASHES_PER_PART)),
        band_parts=max(1, -(-questions // _BAND_KEYS_PER_PART)),
        slices=parts * max(1, -(-questions // (parts * _grown(_QUESTIONS_PER_SLICE, questions)))),
        parts=parts,
    )


def _grown(size: int, questions: int) -> int:
    """The size of a piece, of so many questions in a small archive, in one of so many."""
    return min(_GROWTH * size, max(size, -(-questions // _MOST_PIECES)))


def band_tasks(bands: int, cuts: Cuts) -> list[range]:
    """Which batches of the band keys each task takes: several bands of a small archive, one part of a large one's."""
    keys_per_batch = max(1, cuts.questions // cuts.band_parts)
    return chunks(bands * cuts.band_parts, max(1, _BAND_KEYS_PER_TASK // keys_per_batch))


def chunks(count: int, size: int) -> list[range]:
    """0 to `count` - 1 in runs of `size`; the last may be shorter."""
    return [range(start, min(start + size, count)) for start in range(0, count, size)]
