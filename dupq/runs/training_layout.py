"""The layout of a training: every path of its inputs, its work folder and the encoder."""

from dataclasses import dataclass

from dupq import storage

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
