"""The texts stage: questions → texts, every question tokenised once for all later stages; answers likewise."""

import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.execution.tasks import Counts, Report, run_tasks, skip_or
from dupq.settings.text import TextSettings
from dupq.shards import Shard
from dupq.tables import ANSWERS, QUESTIONS, TEXTS
from dupq.text.keys import Sites
from dupq.text.questions import answer_texts_table, texts_table

_ROWS_AT_ONCE = 1_024


def make_texts(shards: list[Shard], sites: Sites, settings: TextSettings, folder: str) -> Report:
    """Write the texts of each question shard to `folder`. A task holds a shard's tokens and a piece of its HTML."""
    calls = [(shard, sites.names, settings, storage.join(folder, shard.file)) for shard in shards]
    return run_tasks("texts", _texts_of_shard, calls)


def _texts_of_shard(shard: Shard, sites: list[str], settings: TextSettings, output: str) -> Counts:
    def make() -> Counts:
        pieces = storage.read_pieces(shard.uri, QUESTIONS, ["question_id", "title", "body_html"], _ROWS_AT_ONCE)
        tables = [TEXTS.empty_table()]
        for piece in pieces:
            keys = Sites(sites).pack(shard.site, piece["question_id"].to_numpy(), shard.uri)
            tables.append(texts_table(pa.array(keys), piece["title"], piece["body_html"], settings))
        texts = pa.concat_tables(tables)
        empty = pc.sum(pc.equal(texts["text"], "")).as_py() or 0
        counts = {"rows_in": len(texts), "empty texts": empty}
        storage.write_table(output, texts, TEXTS, counts)
        return {**counts, "rows_out": len(texts)}

    return skip_or(output, make)


def make_answer_texts(shards: list[Shard], sites: Sites, settings: TextSettings, folder: str) -> Report:
    """Write the texts of each shard of answers to `folder`, by the keys of the answers."""
    calls = [(shard, sites.names, settings, storage.join(folder, shard.file)) for shard in shards]
    return run_tasks("answer_texts", _answer_texts_of_shard, calls)


def _answer_texts_of_shard(shard: Shard, sites: list[str], settings: TextSettings, output: str) -> Counts:
    def make() -> Counts:
        tables = [TEXTS.empty_table()]
        for piece in storage.read_pieces(shard.uri, ANSWERS, ["answer_id", "body_html"], _ROWS_AT_ONCE):
            keys = Sites(sites).pack(shard.site, piece["answer_id"].to_numpy(), shard.uri)
            tables.append(answer_texts_table(pa.array(keys), piece["body_html"], settings))
        texts = pa.concat_tables(tables)
        storage.write_table(output, texts, TEXTS, {"rows_in": len(texts)})
        return {"rows_in": len(texts), "rows_out": len(texts)}

    return skip_or(output, make)
