"""The layout of a run and of a training: every path that is read or written."""

from dataclasses import dataclass

from dupq import storage

_ONE = "part-00000.parquet"  # of a table in one partition


class _Below:
    """An attribute of a layout: the URI of a file or folder below it."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, layout: "NeighbourFiles | RunLayout | TrainingFiles", kind: type) -> str:
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
        """What a teacher's vectors are made by, what the questions with such vectors say, and the vectors."""
        made_as, contents, vectors = (
            self.path("work", "teacher", name) for name in ("made_as.json", "contents", "vectors")
        )
        return made_as, contents, vectors


TEACHERS = "teachers"  # the folder of `kept_by`, and in `taught_as` the teachers' fingerprints


@dataclass(frozen=True)
class TrainingFiles:
    """The files of a training that are no tables."""

    work: str  # URI of the training
    taught_as = _Below("taught_as.json")  # which teachers encoded questions, and on what
    weights = _Below("best.safetensors")  # the network at its best epoch
    curve = _Below("learning_curve.json")  # what each epoch gave
    encoder = _Below("encoder")  # the folder of the saved encoder, before it is published

    def path(self, *names: str) -> str:
        """The URI of something in the training."""
        return storage.join(self.work, *names)

    def kept_by(self, teacher: str, device: str) -> str:
        """The folder, beside all trainings of the output, of what a teacher encoded for any of them.

        It is named by the teacher's fingerprint and the kind of device that `taught_as` has.
        """
        return storage.join(storage.parent(self.work), TEACHERS, f"{teacher}-{device}")
