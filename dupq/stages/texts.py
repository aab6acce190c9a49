"""questions → texts: every question tokenised once, shard by shard, for all later stages."""

import pyarrow as pa

from dupq import storage
from dupq.config import TextSettings
from dupq.stages.shards import Shard
from dupq.stages.tasks import Counts, Report, run_tasks, skip_or
from dupq.tables import QUESTIONS, TEXTS
from dupq.text.keys import Sites
from dupq.text.questions import texts_table


def make_texts(shards: list[Shard], sites: Sites, settings: TextSettings, folder: str) -> Report:
    """Write the texts of each question shard to `folder`. A task holds one shard: its HTML and its tokens."""
    calls = [(shard, sites.names, settings, storage.join(folder, shard.file)) for shard in shards]
    return run_tasks("texts", _texts_of_shard, calls)


def _texts_of_shard(shard: Shard, sites: list[str], settings: TextSettings, output: str) -> Counts:
    def make() -> Counts:
        questions = storage.read_table(shard.uri, QUESTIONS, ["question_id", "title", "body_html"])
        keys = Sites(sites).pack(shard.site, questions["question_id"].to_numpy(), shard.uri)
        texts = texts_table(pa.array(keys), questions["title"], questions["body_html"], settings)
        counts = {"rows_in": len(questions), "empty texts": texts["text"].to_pylist().count("")}
        storage.write_table(output, texts, TEXTS, counts)
        return {**counts, "rows_out": len(texts)}

    return skip_or(output, make)
