"""The arguments of `dupq evaluate`, for its own tables; papers.py has those for the papers'."""

from dataclasses import dataclass

from dupq import storage
from dupq.encoders.description import read_settings
from dupq.errors import DupqError, SettingError
from dupq.evaluation.tables import TABLES
from dupq.links.pair_files import check_pairs
from dupq.pipelines.arguments.encoder import check_encoder
from dupq.runs import writer
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.shards import check_links, check_questions

FREE_SECTIONS = ("encode", "evaluation")  # with an encoder: it reads the texts as it was trained to
_BASELINES_READ = ("text", "training", "evaluation")  # of training the split


@dataclass(frozen=True)
class EvaluationJob:
    """The arguments of `dupq evaluate`: URIs, and the names of the tables to measure.

    `links` is a table of links, or a file of labelled pairs.
    """

    questions: str
    links: str
    output: str
    encoder: str | None = None
    tables: tuple[str, ...] = tuple(TABLES)
    assignments: tuple[str, ...] = ()
    gpus: int | None = None  # that may encode; None: those that the cluster has

    def check(self) -> Settings:
        """The settings; raises DupqError for what is wrong, before any work."""
        writer.check_output(self.output)
        unknown = [name for name in self.tables if name not in TABLES]
        if unknown or not self.tables:
            raise SettingError(f"--table {', '.join(unknown)}: no such table; there are {', '.join(TABLES)}")
        sites, questions = check_questions(self.questions)
        if not questions:
            raise DupqError(f"{self.questions}: no questions in the tables; nothing to measure")
        if is_pair_file(self.links):
            check_pairs(self.links, sites)
        else:
            check_links(self.links)
        if self.encoder is None:
            return config.assign_free(config.load(), self.assignments, _BASELINES_READ, "not read without an encoder")
        settings = self.settings(self.encoder)
        check_encoder(self.encoder, sites)
        return settings

    def settings(self, encoder: str) -> Settings:
        """The settings of a run with the encoder at `encoder`."""
        return config.assign_to_trained(read_settings(encoder), self.assignments, FREE_SECTIONS)


def is_pair_file(links: str) -> bool:
    """Whether the links are labelled pairs, in place of a table."""
    return storage.kind(links) == "file" and not links.endswith(".parquet")
