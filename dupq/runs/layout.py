"""The layout of a run and of a training: every path that is read or written."""

from dataclasses import dataclass

from dupq import storage

# The layout of a run: every path, stage by stage, that is read or written.
#
# Stages get the files of their own step and build no paths themselves.

_ONE = "part-00000.parquet"  # of a table in one partition


class _Below:
    """An attribute of a layout: the URI of a file or folder below it."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, layout: "NeighbourFiles | RunLayout", kind: type) -> str:
        return layout.path(*self._names)


@dataclass(frozen=True)
class NeighbourFiles:
    """Where a run's embeddings are, and where its neighbours go."""

    run: str  # URI
    embeddings = _Below("embeddings")  # one file a shard of questions
    nearest = _Below("work", "neighbours", "nearest")  # each question's list
    directed = _Below("work", "neighbours", "directed")  # the rows for `pairs`
    request = _Below("work", "neighbours", "asked.json")  # the search request that was answered; written last

    def path(self, *names: str) -> str:
        """The URI of something in the run."""
        return storage.join(self.run, *names)


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
    texts = _Below("work", "texts")  # the tokens of the questions; a file a shard
    texts_made_as = _Below("work", "texts_made_as.json")  # what they were made by
    contents = _Below("work", "contents")  # what the questions say: hashes, and the signs of titles; a file a shard
    signatures = _Below("work", "signatures")  # the MinHash signatures of the texts that copy none
    representatives = _Below("work", "representatives", _ONE)  # of verified pairs, and which question represents them
    rarities = _Below("work", "terms", "rarities", _ONE)  # how rare each term is
    calibration = _Below("work", "calibration", "calibration.json")  # the model of a probability, and its grounds
    teacher_made_as = _Below("work", "teacher", "made_as.json")  # what a teacher's vectors are made by
    teacher_contents = _Below("work", "teacher", "contents")  # what the questions with such vectors say
    teacher_vectors = _Below("work", "teacher", "vectors")

    def path(self, *names: str) -> str:
        """The URI of something in the run."""
        return storage.join(self.uri, *names)

    @property
    def encoding(self) -> Encoding:
        """Of the embeddings."""
        made_as = self.path("work", "encoded_as.json")
        embeddings = self.neighbours.embeddings
        return Encoding(self.texts, self.contents, self.encoder, self.representatives, made_as, embeddings)

    @property
    def neighbours(self) -> NeighbourFiles:
        """Of the all-pairs search."""
        return NeighbourFiles(self.uri)

    @property
    def teacher(self) -> tuple[str, str, str]:
        """All that is kept of a teacher."""
        return self.teacher_made_as, self.teacher_contents, self.teacher_vectors


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
