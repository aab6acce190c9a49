"""An archive of any size, ranked for the questions that it is measured on, by the encoder and by the baselines.

    ask         one task                      what is measured, with systems that note what they are asked
    encode      a task a shard                the embeddings of questions that have none, as another one represents them
    read        a task a shard                the bags of all questions for BM25; texts and embeddings of those that are
                                              ranked for, and of those in pairs that are scored (compared.py)
    gather      one task                      those of the questions asked for; how many questions have which terms
    rank        a task a shard and system     the best of the shard's questions for each of those
    score       a task some pairs             their scores by each system
    measure     one task                      what is measured, with systems that know the answers

Memory: a shard, or as many pairs; the questions asked for; in the first and last task 8 bytes a question, twice that
while they are read, and 64 a pair.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import storage
from dupq.encoders.description import read_measure
from dupq.evaluation import bm25, shingle_jaccard
from dupq.evaluation.ranked import Archive, Measuring, Noted, Ranked, Scored
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.near_duplicates.pairing import distinct_pairs
from dupq.neighbours.nearest import Nearest, empty_nearest, merge_rows
from dupq.runs.embeddings import read_embeddings, write_embeddings
from dupq.runs.keys import all_keys, pairs_in
from dupq.runs.layout import RankingFiles
from dupq.stages.evaluation.bag_files import read_bags, read_counted, read_statistics, write_statistics
from dupq.stages.evaluation.compared import (
    SAID,
    SHINGLES,
    Ranking,
    embeddings_for,
    embeddings_in,
    encode_missing,
    pieces_of_pairs,
    read_shard,
    read_terms,
    score_pairs,
    strings,
    texts_for,
)
from dupq.stages.neighbours.tables import nearest_table, read_nearest
from dupq.tables import ASKED_RANKINGS, KEY_PAIRS, NEAREST, TEXTS
from dupq.text.keys import Sites, are_among, distinct


def measure_ranked(ranking: Ranking, measure: Measuring) -> Report:
    """Write what `measure` measures. It is called in two tasks; what it finds in the first one counts for nothing."""
    files = ranking.files
    names = [file.relative for file in storage.list_files(files.texts, ".parquet")]
    report = run_tasks("ask", _ask, [(ranking, measure)])
    pieces = range(pieces_of_pairs(ranking))
    if report.counts["questions that others are compared with"]:
        of_shards = [(ranking, name) for name in names]
        if files.encoder is not None:
            report.add(run_tasks("encode", encode_missing, of_shards, gpus=ranking.gpus))
        report.add(run_tasks("read", read_shard, of_shards))
        report.add(run_tasks("gather", _gather, [(ranking, names)]))
        calls = [(ranking, system, name) for system in _asked_systems(files) for name in names]
        report.add(run_tasks("rank", _rank_shard, calls))
        report.add(run_tasks("score", score_pairs, [(ranking, names, number) for number in pieces]))
    report.add(run_tasks("measure", _measure, [(ranking, names, len(pieces), measure)]))
    return report


def _ask(ranking: Ranking, measure: Measuring) -> Counts:
    files = ranking.files

    def make() -> Counts:
        asked = {system: Noted() for system in ranking.systems}
        measure(Archive(all_keys(files.texts), asked))
        rows = [(system, key, noted.k) for system, noted in asked.items() for key in noted.queries.tolist()]
        columns = [pa.array(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
        pairs = distinct_pairs(np.concatenate([noted.pairs for noted in asked.values()]))
        wanted = distinct(np.concatenate([pairs.ravel(), *(noted.queries for noted in asked.values())]))
        storage.write_table(files.pairs, pa.table([*map(pa.array, pairs.T)], schema=KEY_PAIRS), KEY_PAIRS)
        storage.write_table(files.asked, pa.table(columns, schema=ASKED_RANKINGS), ASKED_RANKINGS)
        return {"questions that others are compared with": len(wanted)}

    return skip_or(files.asked, make)


def _asked(files: RankingFiles, system: str) -> tuple[np.ndarray, int]:
    """The questions that a system ranks for (keys, sorted), and how far."""
    table = storage.read_table(files.asked, ASKED_RANKINGS)
    mine = table.filter(pc.equal(table["system"], system))
    return np.sort(mine["key"].to_numpy()), int(mine["k"][0].as_py()) if len(mine) else 0


def _asked_systems(files: RankingFiles) -> list[str]:
    return sorted(set(storage.read_table(files.asked, ASKED_RANKINGS)["system"].to_pylist()))


def _gather(ranking: Ranking, names: list[str]) -> Counts:
    files, sites = ranking.files, Sites(ranking.sites)

    def make() -> Counts:
        asked = pieces_of_pairs(ranking)  # what is asked for comes after all pieces
        storage.write_table(files.asked_texts, texts_for(files, names, asked), SAID)
        if files.encoder is not None:
            write_embeddings(files.asked_embeddings, embeddings_for(ranking, names, asked), sites)
        terms = distinct(np.concatenate([read_terms(files, name) for name in names]))
        found = bm25.statistics((read_counted(files.step("bags", name)) for name in names), terms)
        write_statistics(files.statistics, found)  # last: it marks the rest
        return {}

    return skip_or(files.statistics, make)


def _rank_shard(ranking: Ranking, system: str, name: str) -> Counts:
    output = ranking.files.step(system, name)

    def make() -> Counts:
        queries, k = _asked(ranking.files, system)
        if system == "encoder":
            table = _by_encoder(ranking, name, queries, k)
        else:
            table = _by_baseline(ranking, name, system, queries, k)
        storage.write_table(output, table, NEAREST)
        return {}

    return skip_or(output, make)


def _by_encoder(ranking: Ranking, name: str, queries: np.ndarray, k: int) -> pa.Table:
    import torch

    from dupq.neighbours.tiles import Search, block, search_tile

    torch.set_num_threads(1)
    measure = read_measure(str(ranking.files.encoder))
    wanted = read_embeddings(ranking.files.asked_embeddings, Sites(ranking.sites))
    asked = block(wanted.take(are_among(queries, wanted.keys)), measure)
    found = search_tile(asked, block(embeddings_in(ranking, name), measure), Search(measure, k), both=False)[0]
    return nearest_table(asked.keys, found)


def _by_baseline(ranking: Ranking, name: str, system: str, queries: np.ndarray, k: int) -> pa.Table:
    files = ranking.files
    wanted = storage.read_table(files.asked_texts, SAID)
    asked = strings(wanted.filter(pa.array(are_among(queries, wanted["key"].to_numpy()))))
    table = storage.read_table(storage.join(files.texts, name), TEXTS, SAID.names).sort_by("key")
    keys = table["key"].to_numpy()
    if system == "bm25":
        bags = bm25.bags_of(asked, ranking.language), read_bags(files.step("bags", name))
        found = bm25.rank((queries, bags[0]), (keys, bags[1]), read_statistics(files.statistics), k)
    else:
        found = shingle_jaccard.rank((queries, asked), (keys, strings(table)), SHINGLES[system], k)
    return nearest_table(queries, Nearest(*found, np.zeros(len(queries), np.int64)))


def _measure(ranking: Ranking, names: list[str], pieces: int, measure: Measuring) -> Counts:
    files = ranking.files
    tables = [storage.read_table(files.scores(number)) for number in range(pieces)]
    scored = pa.concat_tables(tables) if tables else KEY_PAIRS.empty_table()
    rankers = {system: _ranked(ranking, names, system, scored) for system in ranking.systems}
    storage.write_json(files.measures, measure(Archive(all_keys(files.texts), rankers)))
    return {}


def _ranked(ranking: Ranking, names: list[str], system: str, scored: pa.Table) -> Ranked:
    queries, k = _asked(ranking.files, system)
    lists = empty_nearest(len(queries), k)
    for name in names if len(queries) else []:
        keys, found = read_nearest(ranking.files.step(system, name), k)
        merge_rows(lists, np.searchsorted(queries, keys), found)
    scores = scored[system].to_numpy() if len(scored) else np.zeros(0)
    return Ranked(queries, lists.others, Scored(pairs_in(scored), scores))
