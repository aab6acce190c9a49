"""The texts stage: questions → texts, every question tokenised once for all later stages; answers likewise."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.errors import DupqError
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.near_duplicates.asking import signs_of
from dupq.runs.keys import all_keys
from dupq.settings.text import TextSettings
from dupq.shards import Shard, read_shard, read_shard_pieces
from dupq.stages.earlier import LEFT_OUT, Earlier, Found, find_contents, read_texts
from dupq.tables import ANSWERS, CONTENTS, QUESTIONS, TEXTS
from dupq.text.contents import content_hashes
from dupq.text.keys import MAXIMUM_ID, RowsByKey, Sites, are_among
from dupq.text.languages import language_of
from dupq.text.questions import answer_texts_table, texts_table

_ROWS_AT_ONCE = 1_024
_SHARDS = 32  # in whose titles an archive's language is looked for
_MOST = 0.8  # of the titles that are in one language, else an archive is of several


def make_texts(
    shards: list[Shard],
    sites: Sites,
    settings: TextSettings,
    folder: str,
    contents: str | None = None,
    earlier: Earlier | None = None,
) -> Report:
    """Write the texts of each question shard to `folder`, and CONTENTS of them to the folder `contents`.

    Texts of questions that say what they said in an `earlier` run are taken from there. A task holds a shard's tokens
    and a piece of its HTML.
    """
    calls = [(shard, sites.names, settings, storage.join(folder, shard.file), contents, earlier) for shard in shards]
    return run_tasks("texts", _texts_of_shard, calls)


def language_of_shards(shards: list[Shard]) -> tuple[str, str]:
    """The language of the first titles of some of the shards, spread over all, and how that is known, in words.

    It is "other" where shards are in several languages: the stems of one would be wrong for too many words.
    """
    titles: Counter[str] = Counter()
    for shard in shards[:: -(-len(shards) // _SHARDS) or 1]:
        some = _first_titles(shard)
        titles[language_of(some)] += len(some)
    shares = {name: count / max(1, titles.total()) for name, count in titles.most_common()}
    language = (
        next((name for name, share in shares.items() if share >= _MOST), "other") if titles.total() else "english"
    )
    said = ", ".join(f"{share:.0%} {name}" for name, share in shares.items())
    return language, f"{language}, found out: titles are {said}"


def _first_titles(shard: Shard) -> pa.StringArray:
    pieces = read_shard_pieces(shard, QUESTIONS, ["title"], _ROWS_AT_ONCE)
    return next((piece["title"] for piece in pieces), pa.array([], pa.string()))


def make_distinct_texts(shards: list[Shard], sites: Sites, settings: TextSettings, folder: str) -> Report:
    """As `make_texts`; raises DupqError if a question appears twice. One task then holds all keys, 8 bytes each.

    For jobs that hold them later too; dedup finds repeated keys in its next stage, spread over many tasks.
    """
    report = make_texts(shards, sites, settings, folder)
    report.add(run_tasks("texts", _check_distinct, [(folder, sites.names)]))
    return report


def _check_distinct(folder: str, sites: list[str]) -> Counts:
    check_distinct(all_keys(folder), Sites(sites))
    return {}


def check_distinct(keys: np.ndarray, sites: Sites) -> None:
    """Raise DupqError if one of the sorted `keys` appears twice."""
    repeated = keys[1:][keys[1:] == keys[:-1]]
    if len(repeated):
        raise DupqError(
            f"questions: {sites.label(int(repeated[0]))} appears more than once ({len(repeated)} or more rows too "
            "many in all); ingest the dump anew into an empty folder"
        )


def _texts_of_shard(
    shard: Shard,
    sites: list[str],
    settings: TextSettings,
    output: str,
    contents: str | None,
    earlier: Earlier | None,
) -> Counts:
    def make() -> Counts:
        names, then, left_out = _contents_then(shard, earlier)
        tables, hashes, is_same = [TEXTS.empty_table()], [CONTENTS.empty_table()], [np.zeros(0, bool)]
        keys = [np.zeros(0, np.int64)]
        for piece in read_shard_pieces(shard, QUESTIONS, ["question_id", "title", "body_html"], _ROWS_AT_ONCE):
            ids = piece["question_id"].to_numpy()
            keys.append(Sites(sites).pack(shard.site, ids, shard.uri))
            if contents is not None:
                found = content_hashes(piece["title"], piece["body_html"])
                columns = [*map(pa.array, (keys[-1], *found.T)), signs_of(piece["title"])]
                hashes.append(pa.table(columns, schema=CONTENTS))
                is_same.append(then.are_same(ids, found))
                piece = piece.filter(pa.array(~is_same[-1]))
            own = Sites(sites).pack(shard.site, piece["question_id"].to_numpy(), shard.uri)
            tables.append(texts_table(pa.array(own), piece["title"], piece["body_html"], settings))
        taken = 0
        if earlier is not None:
            same = np.concatenate(keys)[np.concatenate(is_same)] & MAXIMUM_ID
            tables.append(read_texts(earlier, names, shard.site, same, Sites(sites)))
            taken = len(same)
        texts = _in_order(pa.concat_tables(tables), np.concatenate(keys), Sites(sites))
        if contents is not None:
            storage.write_table(storage.join(contents, shard.file), pa.concat_tables(hashes), CONTENTS)
        empty = pc.sum(pc.equal(texts["text"], "")).as_py() or 0
        storage.write_table(output, texts, TEXTS)
        return {
            "rows_in": len(texts),
            "empty texts": empty,
            "rows_out": len(texts),
            "texts as in the earlier run": taken,
            LEFT_OUT: left_out,
        }

    return skip_or(output, make)


def _contents_then(shard: Shard, earlier: Earlier | None) -> Found:
    ids = np.zeros(0, np.int64)
    if earlier is not None:
        ids = read_shard(shard, QUESTIONS, ["question_id"])["question_id"].to_numpy()
    return find_contents(earlier, shard.site, ids)


def _in_order(table: pa.Table, keys: np.ndarray, sites: Sites) -> pa.Table:
    """The rows of `table`, which has just these `keys`, in their order."""
    found = table["key"].to_numpy()
    if len(found) != len(keys):  # of a question that appears twice the earlier run has one row
        check_distinct(np.sort(keys), sites)
    if (found == keys).all():
        return table
    return table.take(pa.array(RowsByKey(found).of(keys)))


def make_answer_texts(shards: list[Shard], sites: Sites, settings: TextSettings, folder: str) -> Report:
    """Write the texts of each shard of answers to `folder`, by the keys of the answers."""
    calls = [(shard, sites.names, settings, storage.join(folder, shard.file)) for shard in shards]
    return run_tasks("answer_texts", _answer_texts_of_shard, calls)


def _answer_texts_of_shard(shard: Shard, sites: list[str], settings: TextSettings, output: str) -> Counts:
    def make() -> Counts:
        tables = [TEXTS.empty_table()]
        for piece in read_shard_pieces(shard, ANSWERS, ["answer_id", "body_html"], _ROWS_AT_ONCE):
            keys = Sites(sites).pack(shard.site, piece["answer_id"].to_numpy(), shard.uri)
            tables.append(answer_texts_table(pa.array(keys), piece["body_html"], settings))
        texts = pa.concat_tables(tables)
        storage.write_table(output, texts, TEXTS)
        return {"rows_in": len(texts), "rows_out": len(texts)}

    return skip_or(output, make)


def texts_among(uri: str, keys: np.ndarray) -> pa.Table:
    """The rows of one file of texts whose questions are among `keys` (ascending)."""
    table = storage.read_table(uri, TEXTS)
    return table.filter(pa.array(are_among(keys, table["key"].to_numpy())))
