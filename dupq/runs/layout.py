"""The layout of a run: every path, stage by stage, that is read or written.

Stages get the files of their own step and build no paths themselves.
"""

from dataclasses import dataclass

from dupq import storage
from dupq.shards import Shard

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
class CalibrationFiles:
    """What calibration reads, and where it writes."""

    folder: str
    neighbours: NeighbourFiles
    texts: str
    representatives: str
    encoder: str
    links: str | None
    verdicts: str | None = None

    @property
    def output(self) -> str:
        """The model and what it rests on."""
        return storage.join(self.folder, "calibration.json")

    @property
    def pairs(self) -> str:
        """The sampled pairs, with features and labels."""
        return storage.join(self.folder, "pairs.parquet")

    @property
    def sample(self) -> str:
        """The sampled questions."""
        return storage.join(self.folder, "sample.parquet")

    @property
    def known(self) -> str:
        """The known duplicates among the questions that have lists, and their parts."""
        return storage.join(self.folder, "known_sets.parquet")

    @property
    def fitness(self) -> str:
        """What the encoder reaches on this archive."""
        return storage.join(self.folder, "fitness.json")

    @property
    def fitness_keys(self) -> str:
        """The questions that it is measured on."""
        return storage.join(self.folder, "fitness_keys.parquet")

    def fitness_texts(self, file: str) -> str:
        """The texts of those that are in a shard."""
        return storage.join(self.folder, "fitness_texts", file)

    def wanted(self, step: int) -> str:
        """The questions whose lists are read in the first (1) and the second (2) step."""
        return storage.join(self.folder, f"wanted-{step}.parquet")

    def lists_in(self, step: int, file: str) -> str:
        """Those of their lists that are in a file of lists."""
        return storage.join(self.folder, f"lists-{step}", file)

    def lists(self, step: int) -> str:
        """Their lists, by key."""
        return storage.join(self.folder, f"lists-{step}.parquet")


@dataclass(frozen=True)
class TeacherFiles:
    """Where a teacher's vectors are, and what tells whose are wanted."""

    folder: str
    before: str  # the folder of the scored pairs
    shards: tuple[Shard, ...]
    parts: int  # of the pairs; calibration wants vectors as one part more
    sampled: str  # the pairs that a run is calibrated on
    contents_now: str  # the folder of the hashes of what all questions say

    def scored(self, part: int) -> str:
        """The pairs of a part, before the teacher has read them."""
        return storage.join(self.before, f"part-{part:05d}.parquet")

    def moved(self, part: int) -> str:
        """The pairs of a part, after."""
        return storage.join(self.folder, "scored", f"part-{part:05d}.parquet")

    @property
    def made_as(self) -> str:
        """What the vectors are made by (JSON)."""
        return storage.join(self.folder, "made_as.json")

    @property
    def model(self) -> str:
        """How much its cosines say (JSON)."""
        return storage.join(self.folder, "model.json")

    @property
    def cosines(self) -> str:
        """Those of the pairs that a run is calibrated on, a row each."""
        return storage.join(self.folder, "cosines.parquet")

    @property
    def contents(self) -> str:
        """The hashes of what the questions say that have vectors, a file for each of `vectors`."""
        return storage.join(self.folder, "contents")

    @property
    def vectors(self) -> str:
        """The exchange files of the vectors, with a batch for each part of the keys; a file a slice of a shard."""
        return storage.join(self.folder, "vectors")

    def wanted(self, part: int) -> str:
        """The keys whose vectors a part wants, a batch for each part that has them."""
        return storage.join(self.folder, "wanted", f"part-{part:05d}.arrow")

    def wanted_of(self, home: int) -> str:
        """Those of a part's keys whose vectors any part wants."""
        return storage.join(self.folder, "wanted_of", f"part-{home:05d}.parquet")

    def vectors_for(self, home: int) -> str:
        """The vectors of a part's questions, a batch for each part that wants them."""
        return storage.join(self.folder, "vectors_for", f"part-{home:05d}.arrow")


@dataclass(frozen=True)
class EvaluationFiles:
    """A run's tables, and where the metrics go."""

    texts: str
    representatives: str
    embeddings: str
    encoder: str
    links: str | None
    truth: str | None
    pairs: str
    clusters: str
    cluster_stats: str
    calibration: str
    threshold: str
    members: str
    shards: tuple[Shard, ...]
    verdicts: str | None  # a filled-in review.tsv of an earlier run
    judged: str | None  # all verdicts
    joined: str  # the pairs that join at any probability
    worklist: str
    previous: str | None  # an earlier run
    work: str  # a folder
    output: str

    @property
    def quality(self) -> "QualityFiles":
        """Of the comparison with known duplicates; only with links."""
        work = storage.join(self.work, "links")
        given = self.shards, self.encoder, str(self.links), self.pairs, self.members, self.texts, self.representatives
        return QualityFiles(*given, work)

    @property
    def runs(self) -> str:
        """The folder of runs."""
        return storage.parent(storage.parent(self.output))


@dataclass(frozen=True)
class QualityFiles:
    """What is read, and where what has to do with linked questions goes."""

    shards: tuple[Shard, ...]
    encoder: str
    links: str
    pairs: str
    members: str
    texts: str
    representatives: str
    work: str  # a folder

    @property
    def tested(self) -> str:
        """The links of the test part."""
        return storage.join(self.work, "tested.parquet")

    @property
    def searched(self) -> str:
        """Those of them that near duplicates leave to the encoder: pairs of two representatives."""
        return storage.join(self.work, "searched.parquet")

    @property
    def sets(self) -> str:
        """The sets that all links of the archive form, and their parts."""
        return storage.join(self.work, "sets.parquet")

    def step(self, kind: str, *file: str) -> str:
        """What is made of a file of pairs, or of a shard; the folder of all without one."""
        return storage.join(self.work, kind, *file)


@dataclass(frozen=True)
class ReviewFiles:
    """Where the sample is made."""

    pairs: str  # a folder
    folder: str
    output: str  # review.parquet
    sheet: str  # review.tsv


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
    shards: tuple[Shard, ...]  # of the questions
    encoder: str
    links: str | None  # known duplicates, unless there are none or they are ignored
    truth: str | None
    verdicts: str | None  # a filled-in review.tsv
    previous: str | None  # an earlier run
    parts: int = 1  # into which pairs are spread by their left key
    judged: str | None = None  # all verdicts that the run knows of, of each pair the last

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
    def members(self) -> str:
        """The questions of clusters."""
        return self.path("work", "clusters", "members", _ONE)

    @property
    def threshold(self) -> str:
        """The threshold, and what is expected of others (JSON)."""
        return self.path("work", "pairs", "threshold.json")

    @property
    def calibration(self) -> CalibrationFiles:
        """Of the calibration."""
        return CalibrationFiles(
            folder=self.path("work", "calibration"),
            neighbours=self.neighbours,
            texts=self.texts,
            representatives=self.representatives,
            encoder=self.encoder,
            links=self.links,
            verdicts=self.judged,
        )

    @property
    def review(self) -> ReviewFiles:
        """Of the sample of pairs to be judged."""
        work = self.path("work", "review")
        return ReviewFiles(self.path("pairs"), work, self.path("review.parquet"), self.path("review.tsv"))

    @property
    def worklist(self) -> str:
        """The likeliest pairs that are not joined."""
        return self.path("worklist", _ONE)

    @property
    def teacher(self) -> TeacherFiles:
        """Of a teacher's vectors."""
        scored = self.path("work", "pairs", "scored")
        sampled = self.calibration.pairs, self.contents
        return TeacherFiles(self.path("work", "teacher"), scored, self.shards, self.parts, *sampled)

    @property
    def evaluation(self) -> EvaluationFiles:
        """Of metrics.json."""
        return EvaluationFiles(
            texts=self.texts,
            representatives=self.representatives,
            embeddings=self.path("embeddings"),
            encoder=self.encoder,
            links=self.links,
            truth=self.truth,
            pairs=self.path("pairs"),
            clusters=self.path("clusters"),
            cluster_stats=self.path("cluster_stats"),
            calibration=self.calibration.output,
            threshold=self.threshold,
            members=self.members,
            shards=self.shards,
            verdicts=self.verdicts,
            judged=self.judged,
            joined=self.path("work", "partition", "joined", _ONE),
            worklist=self.worklist,
            previous=self.previous,
            work=self.path("work", "evaluation"),
            output=self.path("metrics.json"),
        )
