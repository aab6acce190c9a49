"""The questions that an archive is measured on: their texts and embeddings, out of its shards, and scores of pairs.

The pairs are cut into pieces. What a shard has for each piece, and for the questions that are ranked for, are the
batches of one file, so that nobody holds the questions of all pairs: of 280,000 pairs these may be 800,000.
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dupq import devices, storage, tables
from dupq.encoders.description import read_measure
from dupq.evaluation import bm25, shingle_jaccard
from dupq.execution import exchange
from dupq.execution.units import Counts, skip_or
from dupq.neighbours.embeddings import Embeddings, gathered
from dupq.runs.embeddings import embedded_keys, embeddings_of, embeddings_table, read_embeddings, write_embeddings
from dupq.runs.keys import pairs_in
from dupq.runs.layout import RankingFiles
from dupq.stages.evaluation.bag_files import read_statistics, write_bags
from dupq.tables import ASKED_RANKINGS, BAG_TERMS, KEY_PAIRS, TEXTS
from dupq.text.keys import Sites, are_among, distinct

SHINGLES = {f"shingle_jaccard_{size}": size for size in shingle_jaccard.SIZES}
SAID = pa.schema([TEXTS.field("key"), TEXTS.field("text")])
_TERMS = pa.schema([BAG_TERMS.field("term")])
_PAIRS_AT_ONCE = 20_000  # of no more questions than a shard has


@dataclass(frozen=True)
class Ranking:
    """What every task is told: the files, the sites of the archive and its language."""

    files: RankingFiles
    sites: list[str]
    language: str
    gpus: int = 0  # that encode what has no embedding, as all others were
    pairs_at_once: int = field(default_factory=lambda: _PAIRS_AT_ONCE)  # that a task scores

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems that are compared; without an encoder only the baselines."""
        return (*(["encoder"] if self.files.encoder else []), "bm25", *SHINGLES)


def pieces_of_pairs(ranking: Ranking) -> int:
    """Into how many pieces the pairs are cut."""
    return -(-storage.read_counts(ranking.files.pairs)["rows_out"] // ranking.pairs_at_once)


def _pieces(ranking: Ranking) -> list[np.ndarray]:
    """The pieces: views of all pairs, 16 bytes each."""
    pairs, size = pairs_in(storage.read_table(ranking.files.pairs, KEY_PAIRS)), ranking.pairs_at_once
    return [pairs[start : start + size] for start in range(0, len(pairs), size)]


def _asked_keys(files: RankingFiles) -> np.ndarray:
    """The questions that any system ranks for, one for each system."""
    return storage.read_table(files.asked, ASKED_RANKINGS, ["key"])["key"].to_numpy()


def read_shard(ranking: Ranking, name: str) -> Counts:
    """Write the bags of a shard, and what it has for each piece of the pairs and for the questions asked for."""
    files = ranking.files
    output = _spread(files, "texts", name)

    def make() -> Counts:
        table = storage.read_table(storage.join(files.texts, name), TEXTS).sort_by("key")
        keys = table["key"].to_numpy()
        rows = [np.flatnonzero(are_among(distinct(wanted), keys)) for wanted in [*_pieces(ranking), _asked_keys(files)]]
        if files.encoder is not None:
            whole = embeddings_in(ranking, name)
            schema = tables.embeddings(whole.vectors.shape[1], whole.words is not None)
            of_rows = (embeddings_table(whole.take(some), Sites(ranking.sites)) for some in rows)
            exchange.write_parts(_spread(files, "embeddings", name), map(exchange.one_batch, of_rows), schema)
        bags = bm25.bags_of(strings(table), ranking.language)
        write_bags(files.step("bags", name), bags)
        terms = bags.terms[distinct(bags.counts[distinct(np.concatenate(rows))].indices)]
        storage.write_table(files.step("terms", name), pa.table([pa.array(terms)], schema=_TERMS), _TERMS)
        texts = (exchange.one_batch(table.select(SAID.names).take(pa.array(some))) for some in rows)
        exchange.write_parts(output, texts, SAID)  # last: it marks the rest
        return {}

    return skip_or(output, make)


def _spread(files: RankingFiles, kind: str, name: str) -> str:
    """What a shard has, a batch a piece of the pairs, and one for what is asked for."""
    return files.step(kind, f"{name}.arrow")


def encode_missing(ranking: Ranking, name: str) -> Counts:
    """Encode what of a shard has no embedding, since another question represents it in the run."""
    files, sites = ranking.files, Sites(ranking.sites)
    table = storage.read_table(storage.join(files.texts, name), TEXTS).sort_by("key")
    there = np.sort(embedded_keys(storage.join(files.embeddings, name), sites))
    missing = table.filter(pa.array(~are_among(there, table["key"].to_numpy())))
    if len(missing):
        import torch

        from dupq.encoders.saved import load

        torch.set_num_threads(1)
        saved = load(str(files.encoder))
        saved.network.to(devices.usable(devices.GPU if ranking.gpus else devices.CPU))
        encoded = Embeddings(missing["key"].to_numpy(), *saved.reader.encode(missing)[0])
        write_embeddings(files.step("encoded", name), encoded, sites)
    return {"questions encoded to be compared": len(missing)}


def embeddings_in(ranking: Ranking, name: str) -> Embeddings:
    """The embeddings of all questions of a shard, sorted by key."""
    files, sites = ranking.files, Sites(ranking.sites)
    uris = [storage.join(files.embeddings, name), files.step("encoded", name)]
    return gathered([read_embeddings(uri, sites) for uri in uris if storage.exists(uri)])


def read_terms(files: RankingFiles, name: str) -> np.ndarray:
    """The terms of the questions of a shard that others are compared with."""
    return storage.read_table(files.step("terms", name), _TERMS)["term"].to_numpy()


def texts_for(files: RankingFiles, names: list[str], part: int) -> pa.Table:
    """The texts (SAID) of a piece of the pairs or, after the last of these, of what is asked for, sorted by key."""
    batches = exchange.read_part([_spread(files, "texts", name) for name in names], part)
    return exchange.table_of(batches, SAID).sort_by("key")


def embeddings_for(ranking: Ranking, names: list[str], part: int) -> Embeddings:
    """The embeddings of the same questions."""
    uris = [_spread(ranking.files, "embeddings", name) for name in names]
    batches = zip(exchange.read_part(uris, part), uris, strict=True)
    return gathered([embeddings_of(pa.Table.from_batches([one]), Sites(ranking.sites), uri) for one, uri in batches])


def score_pairs(ranking: Ranking, names: list[str], number: int) -> Counts:
    """Write the scores of a piece of the pairs, a column a system."""
    files = ranking.files
    output = files.scores(number)

    def make() -> Counts:
        pairs, texts = _pieces(ranking)[number], texts_for(files, names, number)
        columns = {"left": pairs[:, 0], "right": pairs[:, 1]}
        if files.encoder is not None:
            columns["encoder"] = _by_encoder(ranking, embeddings_for(ranking, names, number), pairs)
        left, right = np.searchsorted(texts["key"].to_numpy(), pairs).T
        bags = bm25.bags_of(strings(texts), ranking.language)
        columns["bm25"] = bm25.pair_scores(bags, left, right, read_statistics(files.statistics))
        for system, size in SHINGLES.items():
            columns[system] = shingle_jaccard.pair_scores(strings(texts), left, right, size)
        table = pa.table({name: pa.array(column) for name, column in columns.items()})
        storage.write_table(output, table, table.schema)
        return {}

    return skip_or(output, make)


def _by_encoder(ranking: Ranking, embedded: Embeddings, pairs: np.ndarray) -> np.ndarray:
    from dupq.evaluation.rankers import EncoderRanker

    return EncoderRanker(embedded, read_measure(str(ranking.files.encoder))).score(*pairs.T)


def strings(table: pa.Table) -> pa.StringArray:
    """The texts of a table."""
    return pa.concat_arrays([pa.array([], pa.string()), *table["text"].chunks])
