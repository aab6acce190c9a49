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


TEACHERS = "teachers"  # the folder of `teachers`, and in `taught_as` their fingerprints


@dataclass(frozen=True)
class TrainingFiles:
    """Where training reads and writes."""

    texts: str
    links: str | None
    work: str
    answers: str | None = None  # texts that only word vectors are learnt from
    pairs: str | None = None  # what pair files held

    @property
    def encoder(self) -> str:
        """The folder of the saved encoder, before it is published."""
        return storage.join(self.work, "encoder")

    @property
    def vocabulary(self) -> str:
        """The words, one a line."""
        return storage.join(self.work, "vocabulary.txt")

    @property
    def words(self) -> str:
        """The folder of the counts of words."""
        return storage.join(self.work, "words")

    @property
    def written_words(self) -> str:
        """Likewise of words as they are written, where vectors of those are read."""
        return storage.join(self.work, "written_words")

    @property
    def sample(self) -> str:
        """Which questions are read for what, as limits of a hash of their keys."""
        return storage.join(self.work, "sample.json")

    @property
    def example_keys(self) -> str:
        """The keys of the questions that training reads."""
        return storage.join(self.work, "example_keys.parquet")

    @property
    def measured_keys(self) -> str:
        """The keys of the questions of `measured`."""
        return storage.join(self.work, "measured_keys.parquet")

    @property
    def measured(self) -> str:
        """The texts of the questions that the finished encoder is measured on."""
        return storage.join(self.work, "measured.parquet")

    @property
    def token_ids(self) -> str:
        """The folder of what was read of each file of texts."""
        return storage.join(self.work, "token_ids")

    @property
    def titles(self) -> str:
        """The folder of the token ids of titles and bodies."""
        return storage.join(self.work, "titles")

    @property
    def start(self) -> str:
        """The network before its first step, with the word vectors and all else that comes from the archive."""
        return storage.join(self.work, "start.safetensors")

    @property
    def taught(self) -> str:
        """The folder of the questions that teachers encoded, with a folder for each teacher in their order."""
        return storage.join(self.work, "taught")

    @property
    def teachers(self) -> str:
        """The folder of what teachers encoded for any training into this output; each has its own there."""
        return storage.join(storage.parent(self.work), TEACHERS)

    def kept_by(self, teacher: str, device: str) -> str:
        """The folder of one of them there, by its fingerprint and the kind of device that `taught_as` has."""
        return storage.join(self.teachers, f"{teacher}-{device}")

    @property
    def taught_as(self) -> str:
        """What they were encoded by and on (JSON)."""
        return storage.join(self.work, "taught_as.json")

    @property
    def taught_keys(self) -> str:
        """The keys of those questions."""
        return storage.join(self.work, "taught_keys.parquet")

    @property
    def weights(self) -> str:
        """The network at its best epoch."""
        return storage.join(self.work, "best.safetensors")

    @property
    def curve(self) -> str:
        """What each epoch gave."""
        return storage.join(self.work, "learning_curve.json")

    @property
    def training(self) -> str:
        """What the trainer read and took."""
        return storage.join(self.work, "training.json")

    @property
    def checkpoints(self) -> str:
        """The folder of the state after the last epoch, and after the best one."""
        return storage.join(self.work, "checkpoints")

    @property
    def progress(self) -> str:
        """How far the epoch is that runs now."""
        return storage.join(self.work, "epoch.json")

    @property
    def tensorboard(self) -> str:
        """The folder of TensorBoard's event files."""
        return storage.join(self.work, "tensorboard")
