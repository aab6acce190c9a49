"""The layout of a run and of a training: every path that is read or written."""

from dataclasses import dataclass

from dupq import storage

# The layout of a run: every path, stage by stage, that is read or written.
#
# Stages get the files of their own step and build no paths themselves.

_ONE = "part-00000.parquet"  # of a table in one partition


@dataclass(frozen=True)
class NeighbourFiles:
    """Where a run's embeddings are, and where its neighbours go."""

    run: str  # URI

    @property
    def embeddings(self) -> str:
        """One file a shard of questions."""
        return storage.join(self.run, "embeddings")

    @property
    def folder(self) -> str:
        """The parent of all but the embeddings."""
        return storage.join(self.run, "work", "neighbours")

    @property
    def tiles(self) -> str:
        """What each tile finds; not needed once the lists and what is beyond them are written."""
        return storage.join(self.folder, "tiles")

    @property
    def nearest(self) -> str:
        """Each question's list."""
        return storage.join(self.folder, "nearest")

    @property
    def directed(self) -> str:
        """The rows for `pairs`."""
        return storage.join(self.folder, "directed")

    @property
    def request(self) -> str:
        """The search request that was answered (JSON); written last."""
        return storage.join(self.folder, "asked.json")


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
    def texts(self) -> str:
        """The tokens of the questions; a file a shard."""
        return self.path("work", "texts")

    @property
    def signatures(self) -> str:
        """The MinHash signatures of the texts that copy none."""
        return self.path("work", "signatures")

    @property
    def representatives(self) -> str:
        """The questions that are in verified pairs, and which represents them."""
        return self.path("work", "representatives", _ONE)

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
        made_as, folders = self.path("work", "encoded_as.json"), (self.texts, self.contents)
        return Encoding(*folders, self.encoder, self.representatives, made_as, self.path("embeddings"))

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


TEACHERS = "teachers"  # the folder of `kept_by`, and in `taught_as` the teachers' fingerprints


@dataclass(frozen=True)
class TrainingFiles:
    """The files of a training that are no tables."""

    work: str  # URI of the training

    def kept_by(self, teacher: str, device: str) -> str:
        """The folder, beside all trainings of the output, of what a teacher encoded for any of them.

        It is named by the teacher's fingerprint and the kind of device that `taught_as` has.
        """
        return storage.join(storage.parent(self.work), TEACHERS, f"{teacher}-{device}")

    @property
    def taught_as(self) -> str:
        """Which teachers encoded questions, and on what (JSON)."""
        return storage.join(self.work, "taught_as.json")

    @property
    def weights(self) -> str:
        """The network at its best epoch."""
        return storage.join(self.work, "best.safetensors")

    @property
    def curve(self) -> str:
        """What each epoch gave."""
        return storage.join(self.work, "learning_curve.json")

    @property
    def encoder(self) -> str:
        """The folder of the saved encoder, before it is published."""
        return storage.join(self.work, "encoder")
