"""Where the stages of a run read and write: every path that the nightly job (pipeline.py) gives them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dupq import config, runs, storage
from dupq.stages.calibrate import CalibrationFiles
from dupq.stages.clusters import ClusterFiles
from dupq.stages.evaluate import EvaluationFiles
from dupq.stages.neighbour_tables import NeighbourFiles
from dupq.stages.pairs import PairFiles
from dupq.stages.partition import PartitionFiles
from dupq.stages.review import ReviewFiles, estimated
from dupq.stages.shards import Shard, question_shards
from dupq.stages.signatures import NearFiles
from dupq.stages.terms import TermFiles

if TYPE_CHECKING:
    from dupq.pipeline import DedupJob


@dataclass(frozen=True)
class RunFiles:
    """Where the stages of a run read and write."""

    run: runs.Run
    job: "DedupJob"
    settings: config.Settings
    shards: list[Shard]
    parts: int = 1

    @property
    def links(self) -> str | None:
        """The known duplicates, unless they are ignored."""
        return None if self.settings.clusters.known_links == "ignore" else self.job.links

    @property
    def near(self) -> NearFiles:
        """Of the lexical filter."""
        return NearFiles(
            texts=self.run.path("work", "texts"),
            exchange=self.run.path("work", "near_duplicates"),
            signatures=self.run.path("work", "signatures"),
            verified=self.run.path("work", "verified"),
            representatives=self.run.path("work", "representatives.parquet"),
        )

    @property
    def neighbours(self) -> NeighbourFiles:
        """Of the all-pairs search."""
        return NeighbourFiles(self.run.uri)

    @property
    def terms(self) -> TermFiles:
        """Of the terms of questions."""
        return TermFiles(self.near.texts, self.run.path("work", "terms"), tuple(self.shards), self.parts)

    @property
    def calibration(self) -> CalibrationFiles:
        """Of the calibration."""
        return CalibrationFiles(
            folder=self.run.path("work", "calibration"),
            neighbours=self.neighbours,
            terms=self.terms,
            representatives=self.near.representatives,
            encoder=self.job.encoder,
            links=self.links,
            verdicts=self.job.verdicts,
        )

    @property
    def review(self) -> ReviewFiles:
        """Of the sample of pairs to be judged."""
        work = self.run.path("work", "review")
        return ReviewFiles(self.run.path("pairs"), work, self.run.path("review.parquet"), self.run.path("review.tsv"))

    @property
    def pairs(self) -> PairFiles:
        """Of the candidate pairs."""
        folder = self.run.path("work", "pairs")
        return PairFiles(folder, self.neighbours.directed, self.terms, self.calibration.output)

    @property
    def partition(self) -> PartitionFiles:
        """Of components and their partition."""
        folder = self.run.path("work", "partition")
        return PartitionFiles(folder, self.pairs, self.run.path("embeddings"), storage.join(folder, "links.parquet"))

    @property
    def clusters(self) -> ClusterFiles:
        """Of the tables that people read."""
        previous = runs.previous_run(self.job.previous)
        return ClusterFiles(
            partition=self.partition,
            representatives=self.near.representatives,
            verified=self.near.verified,
            texts=self.near.texts,
            links=self.links,
            previous=None if previous is None else storage.join(previous, "clusters"),
            members=self.run.path("work", "members.parquet"),
            alone=self.run.path("work", "alone.parquet"),
            pairs=self.run.path("pairs"),
            clusters=self.run.path("clusters"),
            cluster_stats=self.run.path("cluster_stats", "part-00000.parquet"),
            changes=self.run.path("changes", "part-00000.parquet"),
        )

    @property
    def evaluation(self) -> EvaluationFiles:
        """Of metrics.json."""
        return EvaluationFiles(
            texts=self.near.texts,
            representatives=self.near.representatives,
            embeddings=self.run.path("embeddings"),
            encoder=self.job.encoder,
            links=self.links,
            truth=self.job.truth,
            pairs=self.run.path("pairs"),
            clusters=self.run.path("clusters"),
            cluster_stats=self.run.path("cluster_stats"),
            calibration=self.calibration.output,
            threshold=self.pairs.threshold,
            members=self.run.path("work", "members.parquet"),
            shards=tuple(self.shards),
            verdicts=self._judged(),
            previous=runs.previous_run(self.job.previous),
            output=self.run.path("metrics.json"),
        )

    def _judged(self) -> dict | None:
        if self.job.verdicts is None:
            return None
        sites = question_shards(self.job.questions)[1]
        return estimated(self.job.verdicts, storage.absolute(self.job.output), sites)
