"""A made archive, searched: its lists and pairs as Python has them, and by sorting all scores."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dupq import storage
from dupq.archive import Shard
from dupq.job.records import RunFiles
from dupq.job.run import Run
from dupq.job.table import Shuffled, Table
from dupq.job.tasks import Report
from dupq.neighbours.candidates import nearest_in
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.exact import pair_scores
from dupq.settings.sections import NeighbourSettings
from dupq.stages.embeddings import embeddings_table
from dupq.stages.search import search as door
from dupq.stages.search.above_threshold import find_pairs_above
from dupq.stages.search.blocks import Questions, SearchRequest, blocks_of
from dupq.stages.search.everything import NearestTables, files_in_scope, plan_search
from dupq.tables import BLOCKS, EMBEDDED, NEAREST, NEIGHBOURS, embeddings
from dupq.text.keys import ID_BITS, Sites

SITES = ["a.example.com", "b.example.com", "c.example.com"]
MIX = Measure("cosine", 1.0, 0.5)
K, FLOOR, PARTS = 5, 0.5, 2


def made_up(counts: list[int], seed: int = 0) -> Embeddings:
    """Questions of the sites in clusters, some copies, a few without an embedding; bags of words too."""
    generator = np.random.default_rng(seed)
    keys = [np.sort(generator.choice(10**6, count, replace=False)) | (s << ID_BITS) for s, count in enumerate(counts)]
    total = sum(counts)
    centres = generator.normal(size=(total // 6 + 1, 12))
    vectors = centres[generator.integers(0, len(centres), total)] + generator.normal(size=(total, 12)) * 0.4
    vectors[generator.random(total) < 0.1] = vectors[:1].sum(axis=0)
    words = (generator.random((total, 30)) < 0.15) * generator.random((total, 30))
    empty = generator.random(total) < 0.03
    vectors[empty], words[empty] = 0, 0
    bags = sparse.csr_array(words.astype(np.float16).astype(np.float32))
    return Embeddings(np.concatenate(keys), vectors.astype(np.float16), bags)


def write(archive: Embeddings, run: Path, sites: list[str], shards: int = 2) -> tuple[RunFiles, list[Shard]]:
    """The embeddings of a run, each site in `shards` files."""
    files, made = RunFiles(str(run)), []
    for number, site in enumerate(sites):
        of_site = np.flatnonzero(archive.keys >> ID_BITS == number)
        for rows in np.array_split(of_site, shards):
            shard = Shard(len(made), "", site)
            piece = archive.take(rows)
            schema = embeddings(piece.vectors.shape[1], piece.words is not None)
            storage.write_table(
                storage.join(files.path("embeddings"), shard.file), embeddings_table(piece, Sites(sites)), schema
            )
            made.append(shard)
    return files, made


def search_request(
    measure: Measure = MIX,
    sites: Sequence[str] = SITES,
    only: tuple[str, ...] = (),
    **settings: Any,
) -> SearchRequest:
    return SearchRequest(list(sites), NeighbourSettings(k=K, sites=only, **settings), measure, PARTS)


def search(archive: Embeddings, run: Path, wanted: SearchRequest, shards: int = 2) -> tuple[RunFiles, Report]:
    """The lists, and then the pairs above FLOOR that are in none of them."""
    files, made = write(archive, run, wanted.sites, shards)
    report = recorded(files, made, wanted)
    beyond(files, wanted, FLOOR)
    return files, report


def searched(files: RunFiles, shards: list[Shard], wanted: SearchRequest, since: RunFiles | None = None) -> Report:
    """What the stage reports that makes the lists, since an earlier run or all of them."""
    run = Run(files.uri, "neighbours")
    run.previous = since and since.uri
    door.search.function(run, embedded(files), shards, wanted)
    return run.report


def recorded(files: RunFiles, shards: list[Shard], wanted: SearchRequest, since: RunFiles | None = None) -> Report:
    """As `searched`, with the record by which a later run believes what the stage wrote."""
    run = Run(files.uri)
    run.previous = since and since.uri
    door.search(run, embedded(files), shards, wanted)
    return run.report


def beyond(files: RunFiles, wanted: SearchRequest, floor: float | None) -> Report:
    """What the stage reports that makes the pairs above a floor that are in no list."""
    run, nearest = Run(files.uri, "beyond_lists"), Table(files.nearest, NEAREST, len(storage.list_files(files.nearest)))
    plan = Table(files.path("work", "neighbours", "plan"), BLOCKS, 1)
    found = NearestTables(plan, nearest, Shuffled((), NEIGHBOURS, PARTS), searched_in(files), tuple(wanted.sites))
    find_pairs_above.function(run, found, wanted, floor)
    return run.report


def searched_in(files: RunFiles) -> Table:
    """The embeddings that were searched: of scopes, if the search had any."""
    scoped = len(storage.list_files(files.scoped))
    return Table(files.scoped, EMBEDDED, scoped) if scoped else embedded(files)


def embedded(files: RunFiles) -> Table:
    return Table(files.path("embeddings"), EMBEDDED, len(storage.list_files(files.path("embeddings"))))


def planned_for(files: RunFiles, shards: list[Shard], wanted: SearchRequest) -> list[Questions]:
    run, table = Run(files.uri, "neighbours"), embedded(files)
    return blocks_of(plan_search(run, files_in_scope(table, shards, wanted), wanted, table), table, wanted)


def lists(files: RunFiles) -> dict[int, tuple]:
    found = {}
    for file in storage.list_files(files.nearest, ".parquet"):
        keys, nearest = nearest_in(storage.read_table(file.uri, NEAREST), K)
        rows = zip(keys.tolist(), nearest.others, nearest.scores, strict=True)
        assert not set(keys.tolist()) & found.keys()
        found.update({key: (o[o >= 0].tolist(), s[o >= 0].tolist()) for key, o, s in rows})
    return found


def lists_in(uri: str) -> list[int]:
    """The questions whose lists are in a file."""
    keys: list[int] = storage.read_table(uri, NEAREST)["key"].to_pylist()
    return keys


def rows_for_pairs(files: RunFiles) -> Shuffled:
    """The rows of the lists, and of pairs that are in none."""
    folders = files.path("work", "beyond_lists", "directed"), files.path("work", "neighbours", "directed")
    return Shuffled(tuple(file.uri for folder in folders for file in storage.list_files(folder)), NEIGHBOURS, PARTS)


def directed(files: RunFiles) -> dict[tuple[int, int], tuple[float, int | None]]:
    """Each undirected pair with its similarity and better rank, as the pairs stage reads them."""
    found: dict[tuple[int, int], tuple[float, int | None]] = {}
    for part in range(PARTS):
        for row in rows_for_pairs(files).read(part).to_pylist():
            pair = min(row["query"], row["neighbour"]), max(row["query"], row["neighbour"])
            ranks = [rank for rank in (row["rank"], found.get(pair, (0, None))[1]) if rank]
            found[pair] = row["similarity"], min(ranks, default=None)
    return found


def listings(files: RunFiles) -> dict[tuple[int, int], tuple[int, float]]:
    """How each query lists each neighbour: rank and lift; pairs that neither lists have none of these."""
    found = {}
    for part in range(PARTS):
        for row in rows_for_pairs(files).read(part).to_pylist():
            if row["rank"] is None:
                assert row["lift"] == 0
            else:
                found[row["query"], row["neighbour"]] = row["rank"], row["lift"]
    return found


def results(files: RunFiles) -> tuple:
    return lists(files), directed(files), listings(files)


def slow_listings(files: RunFiles, measure: Measure) -> dict[tuple[int, int], tuple[int, float]]:
    """From the lists, neighbour by neighbour."""
    found = {}
    for key, (others, scores) in lists(files).items():
        similarities = np.array(scores).astype(np.float32).tolist()
        for place, (other, score) in enumerate(zip(others, similarities, strict=True)):
            rest = similarities[:place] + similarities[place + 1 :]
            mean = sum(rest) / len(rest) if rest else 0.0
            found[key, other] = place + 1, (score - mean) / max(measure.highest - mean, 1e-6)
    return found


def slowly(
    archive: Embeddings,
    wanted: SearchRequest,
    floor: float = FLOOR,
    allowed: Callable[[int, int], bool] = lambda a, b: True,
) -> tuple[dict[int, list[int]], dict[tuple[int, int], float]]:
    """Lists, and pairs above a floor, by sorting all float64 scores of pairs that are allowed."""
    there = np.flatnonzero(~archive.is_empty)
    rows, columns = (there[places.ravel()] for places in np.indices((len(there), len(there))))
    scores = pair_scores(wanted.measure, archive, archive, (rows, columns))
    similarities = scores.astype(np.float32)
    near: dict[int, list] = {int(key): [] for key in archive.keys[there]}
    over = {}
    for a, b, score, similarity in zip(
        archive.keys[rows].tolist(), archive.keys[columns].tolist(), scores, similarities, strict=True
    ):
        if a == b or (wanted.settings.scope == "site" and a >> ID_BITS != b >> ID_BITS):
            continue
        if not allowed(a, b):
            continue
        near[a].append((-score, b))
        if a < b and similarity >= np.float32(floor):
            over[a, b] = float(similarity)
    return {key: [other for _, other in sorted(found)[:K]] for key, found in near.items()}, over


def contents(files: RunFiles) -> dict[str, bytes]:
    found = [*rows_for_pairs(files).files, *(file.uri for file in storage.list_files(files.nearest))]
    return {uri.removeprefix(files.uri): Path(uri).read_bytes() for uri in found}
