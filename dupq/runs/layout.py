"""The layout of a run: every path, stage by stage, that is read or written.

Stages get the files of their own step and build no paths themselves.
"""

from dataclasses import dataclass

from dupq import storage

_ONE = "part-00000.parquet"  # of a table in one partition


@dataclass(frozen=True)
class NearFiles:
    """Where the steps find the texts, exchange what they make, and leave their tables."""

    texts: str
    contents: str  # a folder
    rarities: str  # one file
    exchange: str  # a folder
    signatures: str  # a folder
    verified: str
    representatives: str  # one file

    def step(self, name: str, number: int) -> str:
        """What task `number` of a step hands on."""
        return storage.join(self.exchange, name, f"{number:05d}.arrow")

    def steps(self, name: str, count: int) -> list[str]:
        """What all tasks of a step hand on."""
        return [self.step(name, number) for number in range(count)]


@dataclass(frozen=True)
class NeighbourFiles:
    """Where a run's embeddings are, and where its neighbours go."""

    run: str  # URI

    @property
    def embeddings(self) -> str:
        """One file a shard of questions."""
        return storage.join(self.run, "embeddings")

    @property
    def plan(self) -> str:
        """The file that tells how the search is cut."""
        return self._place("plan.json")

    @property
    def folder(self) -> str:
        """The parent of all but the embeddings; its files mean nothing under another plan."""
        return storage.parent(self.plan)

    @property
    def way(self) -> str:
        """The file that tells whether everything is searched, or what is new since an earlier run (JSON)."""
        return self._place("way.json")

    @property
    def request(self) -> str:
        """The search request that was answered (JSON); written last."""
        return self._place("asked.json")

    @property
    def tiles(self) -> str:
        """What each tile finds; not needed once the lists and what is beyond them are written."""
        return self._place("tiles")

    @property
    def nearest(self) -> str:
        """Each question's list."""
        return self._place("nearest")

    @property
    def directed(self) -> str:
        """The rows for the pairs stage."""
        return self._place("directed")

    def tile(self, left: str, right: str, name: str) -> str:
        """One of the files of a tile of two blocks, which are called by their names."""
        return storage.join(self.tiles, f"{left}-{right}", f"{name}.parquet")

    def list_of(self, name: str) -> str:
        """The file of lists of a block's questions."""
        return storage.join(self.nearest, f"{name}.parquet")

    def step(self, kind: str, name: str) -> str:
        """A file that only these stages read."""
        return storage.join(self.tiles, kind, f"{name}.parquet")

    def _place(self, name: str) -> str:
        return storage.join(self.run, "work", "neighbours", name)


@dataclass(frozen=True)
class Encoding:
    """What is encoded, by what, and where it goes."""

    texts: str  # a folder
    contents: str  # the folder of the hashes of what the questions say; read only if there is an earlier run
    encoder: str
    representatives: str | None  # the file of questions that others represent; None encodes all
    made_as: str  # the file that says what the embeddings are made by
    output: str  # a folder


@dataclass(frozen=True)
class RunLayout:
    """Where the stages of a run read and write."""

    uri: str  # of the run
    encoder: str = ""

    def path(self, *names: str) -> str:
        """The URI of something in the run."""
        return storage.join(self.uri, *names)

    @property
    def near(self) -> NearFiles:
        """Of the lexical filter."""
        return NearFiles(
            texts=self.path("work", "texts"),
            contents=self.contents,
            rarities=self.rarities,
            exchange=self.path("work", "near_duplicates"),
            signatures=self.path("work", "signatures"),
            verified=self.path("work", "verified"),
            representatives=self.path("work", "representatives.parquet"),
        )

    @property
    def contents(self) -> str:
        """What the questions say: hashes, and the signs of titles; a file a shard."""
        return self.path("work", "contents")

    @property
    def texts_made_as(self) -> str:
        """What the texts were made by (JSON)."""
        return self.path("work", "texts_made_as.json")

    @property
    def encoding(self) -> Encoding:
        """Of the embeddings."""
        near, made_as = self.near, self.path("work", "encoded_as.json")
        folders = near.texts, self.contents
        return Encoding(*folders, self.encoder, near.representatives, made_as, self.path("embeddings"))

    @property
    def neighbours(self) -> NeighbourFiles:
        """Of the all-pairs search."""
        return NeighbourFiles(self.uri)

    @property
    def rarities(self) -> str:
        """How rare each term is."""
        return self.path("work", "terms", "rarities", _ONE)

    @property
    def calibration(self) -> str:
        """The model of a pair's probability, and what it rests on (JSON)."""
        return self.path("work", "calibration", "calibration.json")

    @property
    def teacher(self) -> tuple[str, str, str]:
        """What a teacher's vectors are made by (JSON), what questions with vectors say, and the vectors."""
        return (
            self.path("work", "teacher", "made_as.json"),
            self.path("work", "teacher", "contents"),
            self.path("work", "teacher", "vectors"),
        )
