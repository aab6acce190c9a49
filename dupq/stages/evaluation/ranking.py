"""An archive of any size, ranked for the questions that it is measured on, by the encoder and by the baselines.

    ask         one task                      what is measured, with systems that note what they are asked
    read        a task a shard                the texts and embeddings of these questions, and the bags of all for BM25
    gather      one task                      these texts and embeddings together; how many questions have their terms
    rank        a task a shard and system     the best of the shard's questions for each of them
    measure     one task                      what is measured, with systems that know the answers

A question that has no embedding, since another one represents it in the run, is encoded where its shard is read.
Memory: what is asked for, and a shard; in the first and last task 8 bytes a question.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dupq import devices, storage
from dupq.encoders.description import read_measure
from dupq.evaluation import bm25, shingle_jaccard
from dupq.evaluation.ranked import Archive, Measuring, Noted, Ranked
from dupq.execution.tasks import Report, run_tasks
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.neighbours.nearest import Nearest, empty_nearest, merge_rows
from dupq.runs.embeddings import read_embeddings, write_embeddings
from dupq.runs.keys import all_keys, read_keys, write_keys
from dupq.runs.layout import RankingFiles
from dupq.stages.evaluation.bag_files import (
    read_bags,
    read_counted,
    read_statistics,
    write_bags,
    write_statistics,
)
from dupq.stages.neighbours.tables import nearest_table, read_nearest
from dupq.tables import ASKED_RANKINGS, NEAREST, TEXTS
from dupq.text.keys import Sites

_SHINGLES = {f"shingle_jaccard_{size}": size for size in shingle_jaccard.SIZES}


@dataclass(frozen=True)
class Ranking:
    """What every task is told: the files, the sites of the archive and its language."""

    files: RankingFiles
    sites: list[str]
    language: str
    gpus: int = 0  # that encode what has no embedding, as all others were

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems that are compared; without an encoder only the baselines."""
        return (*(["encoder"] if self.files.encoder else []), "bm25", *_SHINGLES)


def measure_ranked(ranking: Ranking, measure: Measuring) -> Report:
    """Write what `measure` measures. It is called in two tasks; what it finds in the first one counts for nothing."""
    files = ranking.files
    names = [file.relative for file in storage.list_files(files.texts, ".parquet")]
    report = run_tasks("ask", _ask, [(ranking, measure)])
    if report.counts["questions that others are compared with"]:
        report.add(run_tasks("read", _read_shard, [(ranking, name) for name in names], gpus=ranking.gpus))
        report.add(run_tasks("gather", _gather, [(ranking, names)]))
        calls = [(ranking, system, name) for system in _asked_systems(files) for name in names]
        report.add(run_tasks("rank", _rank_shard, calls))
    report.add(run_tasks("measure", _measure, [(ranking, names, measure)]))
    return report


def _ask(ranking: Ranking, measure: Measuring) -> Counts:
    files = ranking.files

    def make() -> Counts:
        asked = {system: Noted() for system in ranking.systems}
        measure(Archive(all_keys(files.texts), asked))
        rows = [(system, key, noted.k) for system, noted in asked.items() for key in noted.queries.tolist()]
        columns = [pa.array(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
        wanted = np.unique(np.concatenate([part for noted in asked.values() for part in (noted.queries, noted.scored)]))
        counts = {"questions that others are compared with": len(wanted)}
        write_keys(files.wanted, wanted)
        storage.write_table(files.asked, pa.table(columns, schema=ASKED_RANKINGS), ASKED_RANKINGS)
        return counts

    return skip_or(files.asked, make)


def _asked(files: RankingFiles, system: str) -> tuple[np.ndarray, int]:
    """The questions that a system ranks for (keys, sorted), and how far."""
    table = storage.read_table(files.asked, ASKED_RANKINGS)
    mine = table.filter(pc.equal(table["system"], system))
    return np.sort(mine["key"].to_numpy()), int(mine["k"][0].as_py()) if len(mine) else 0


def _asked_systems(files: RankingFiles) -> list[str]:
    return sorted(set(storage.read_table(files.asked, ASKED_RANKINGS)["system"].to_pylist()))


def _read_shard(ranking: Ranking, name: str) -> Counts:
    files = ranking.files
    output = files.step("texts", name)

    def make() -> Counts:
        wanted = read_keys(files.wanted)
        table = _texts(storage.join(files.texts, name))
        counts = {"questions encoded to be compared": 0}
        if files.encoder is not None:
            counts["questions encoded to be compared"] = _read_embeddings(ranking, name, table, wanted)
        bags = bm25.bags_of(_strings(table), ranking.language)
        write_bags(files.step("bags", name), bags)
        mine = table.filter(pa.array(np.isin(table["key"].to_numpy(), wanted)))
        storage.write_table(output, mine, TEXTS)  # last: it marks the rest
        return counts

    return skip_or(output, make)


def _read_embeddings(ranking: Ranking, name: str, table: pa.Table, wanted: np.ndarray) -> int:
    """Encode what of a shard has no embedding, and keep the embeddings that are wanted; how many were encoded."""
    files, sites = ranking.files, Sites(ranking.sites)
    there = read_embeddings(storage.join(files.embeddings, name), sites)
    missing = table.filter(pa.array(~np.isin(table["key"].to_numpy(), there.keys)))
    if len(missing):
        import torch

        from dupq.encoders.saved import load

        torch.set_num_threads(1)
        saved = load(str(files.encoder))
        saved.network.to(devices.usable(devices.GPU if ranking.gpus else devices.CPU))
        encoded = Embeddings(missing["key"].to_numpy(), *saved.reader.encode(missing)[0])
        write_embeddings(files.step("encoded", name), encoded, sites)
    whole = _embeddings(ranking, name)
    write_embeddings(files.step("embeddings", name), whole.take(np.isin(whole.keys, wanted)), sites)
    return len(missing)


def _embeddings(ranking: Ranking, name: str) -> Embeddings:
    """The embeddings of all questions of a shard."""
    files, sites = ranking.files, Sites(ranking.sites)
    uris = [storage.join(files.embeddings, name), files.step("encoded", name)]
    return gathered([read_embeddings(uri, sites) for uri in uris if storage.exists(uri)])


def _gather(ranking: Ranking, names: list[str]) -> Counts:
    files, sites = ranking.files, Sites(ranking.sites)

    def make() -> Counts:
        table = pa.concat_tables([storage.read_table(files.step("texts", name), TEXTS) for name in names])
        storage.write_table(files.wanted_texts, table.sort_by("key"), TEXTS)
        if files.encoder is not None:
            pieces = [read_embeddings(files.step("embeddings", name), sites) for name in names]
            write_embeddings(files.wanted_embeddings, gathered(pieces), sites)
        terms = bm25.bags_of(_strings(_texts(files.wanted_texts)), ranking.language).terms
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
    wanted = read_embeddings(ranking.files.wanted_embeddings, Sites(ranking.sites))
    asked = block(wanted.take(np.isin(wanted.keys, queries)), measure)
    found = search_tile(asked, block(_embeddings(ranking, name), measure), Search(measure, k), both=False)[0]
    return nearest_table(asked.keys, found)


def _by_baseline(ranking: Ranking, name: str, system: str, queries: np.ndarray, k: int) -> pa.Table:
    files = ranking.files
    wanted = _texts(files.wanted_texts)
    wanted = wanted.filter(pa.array(np.isin(wanted["key"].to_numpy(), queries)))
    table = _texts(storage.join(files.texts, name))
    keys, asked = table["key"].to_numpy(), _strings(wanted)
    if system == "bm25":
        bags = bm25.bags_of(asked, ranking.language), read_bags(files.step("bags", name))
        found = bm25.rank((queries, bags[0]), (keys, bags[1]), read_statistics(files.statistics), k)
    else:
        found = shingle_jaccard.rank((queries, asked), (keys, _strings(table)), _SHINGLES[system], k)
    return nearest_table(queries, Nearest(*found, np.zeros(len(queries), np.int64)))


def _measure(ranking: Ranking, names: list[str], measure: Measuring) -> Counts:
    files = ranking.files
    rankers = {system: _ranked(ranking, names, system) for system in ranking.systems}
    storage.write_json(files.measures, measure(Archive(all_keys(files.texts), rankers)))
    return {}


def _ranked(ranking: Ranking, names: list[str], system: str) -> Ranked:
    queries, k = _asked(ranking.files, system)
    lists = empty_nearest(len(queries), k)
    for name in names if len(queries) else []:
        keys, found = read_nearest(ranking.files.step(system, name), k)
        merge_rows(lists, np.searchsorted(queries, keys), found)

    def score(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return _pair_scores(ranking, system, left, right)

    return Ranked(queries, lists.others, score)


def _pair_scores(ranking: Ranking, system: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A system's scores of pairs of wanted questions (keys)."""
    files, inside = ranking.files, np.union1d(left, right)
    if system == "encoder":
        from dupq.evaluation.rankers import EncoderRanker

        embedded = read_embeddings(files.wanted_embeddings, Sites(ranking.sites))
        return EncoderRanker(embedded, read_measure(str(files.encoder))).score(left, right)
    wanted = _texts(files.wanted_texts)
    texts = _strings(wanted.filter(pa.array(np.isin(wanted["key"].to_numpy(), inside))))
    rows = np.searchsorted(inside, left), np.searchsorted(inside, right)
    if system == "bm25":
        return bm25.pair_scores(bm25.bags_of(texts, ranking.language), *rows, read_statistics(files.statistics))
    return shingle_jaccard.pair_scores(texts, *rows, _SHINGLES[system])


def _texts(uri: str) -> pa.Table:
    """A file of texts, by key."""
    return storage.read_table(uri, TEXTS).sort_by("key")


def _strings(table: pa.Table) -> pa.StringArray:
    return pa.concat_arrays([pa.array([], pa.string()), *table["text"].chunks])
