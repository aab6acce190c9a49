"""From scored pairs to clusters, compared with one process that scores each pair of each component."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from oracles.slow_evidence import slow_lead, terms_of
from run_tables import Pair, by_home, scored_pairs, table, write_terms
from scipy import sparse
from scipy.special import expit, logit

from dupq import storage
from dupq.archive import partition_of
from dupq.clusters.calibration import FEATURES, REREAD, Model, features_of
from dupq.clusters.decision import PairScorer
from dupq.clusters.evidence import UNLISTED, Words, shared, title_cosines
from dupq.clusters.partition import partition
from dupq.clusters.reranking import Reread
from dupq.job.run import Run
from dupq.job.table import Broadcast, Shuffled, Table, one_batch, write_batches
from dupq.job.tasks import Report
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.neighbours.exact import pair_scores
from dupq.stages import partition as stage
from dupq.stages.embeddings import embeddings_table
from dupq.stages.partition import Candidates, Partitioning, partition_pairs
from dupq.tables import COMPARED, JOINED_PAIRS, KEY_PAIRS, TITLE_CONTEXT, keyed_vectors
from dupq.text.keys import ID_BITS, Sites
from dupq.text.questions import Terms

SITES = Sites(["a.example.com", "b.example.com"])
MEASURE = Measure("cosine", 1.0, 0.5)
K, THRESHOLD, TERM_COUNT = 10, 0.7, 40
OVER = "questions in components too large to score every pair"
UNLISTED_SCORED = "pairs scored that no question lists"

Clusters = dict[int, int]  # the smallest key of each question's cluster


class Archive(NamedTuple):
    """Representatives (sorted keys), what is compared of them, and candidate pairs, which the left one lists."""

    embeddings: Embeddings
    words: Words
    rarities: np.ndarray
    reference: np.ndarray
    scored: dict[Pair, float]
    links: list[Pair]
    apart: tuple[Pair, ...] = ()
    read: Embeddings | None = None  # a reranker's vectors

    @property
    def keys(self) -> list[int]:
        return self.embeddings.keys.tolist()

    @property
    def lists(self) -> dict[int, list[int]]:
        """Return the neighbours that each question lists."""
        found: dict[int, list[int]] = {key: [] for key in self.keys}
        for left, right in self.scored:
            found[left].append(right)
        return found

    def title_cosine(self, one: int, other: int) -> float:
        rows = (np.searchsorted(self.embeddings.keys, [key]) for key in (one, other))
        return float(title_cosines(self.words.titles, *rows, self.rarities)[0])


def model() -> Model:
    """The probability of pairs that nobody lists depends on their scores and titles."""
    coefficients = np.zeros(len(FEATURES) + 1)
    coefficients[FEATURES.index("place")] = 1.2
    coefficients[FEATURES.index("title_cosine")] = 3.0
    coefficients[FEATURES.index("title_lead")] = 2.0
    coefficients[-1] = -2.5
    return Model(np.zeros(len(FEATURES)), np.ones(len(FEATURES)), coefficients, 0.5)


BY_COSINE = Reread(
    [3.0, 0.3, *[0.0] * len(REREAD[2:]), -1.0], 0.5, 0.4
)  # the probability once a reranker has read both


def texts(sets: Iterable[set[int]], random: np.random.Generator) -> Terms:
    return terms_of([{term: int(random.integers(1, 4)) for term in terms} for terms in sets])


def archive_of(groups: np.ndarray, scored: dict[Pair, float], noise: float, seed: int = 0) -> Archive:
    """Questions of `groups`, which are alike; `scored` is by place."""
    random, count = np.random.default_rng(seed), len(groups)
    ids = np.sort(random.choice(10**6, count, replace=False))
    keys = np.sort(ids | (random.integers(0, 2, count) << ID_BITS))
    centres = random.normal(size=(groups.max() + 1, 12))
    vectors = centres[groups] + noise * random.normal(size=(count, 12))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    bags = (random.random((groups.max() + 1, 30)) < 0.2)[groups] * random.uniform(0.1, 1, (count, 30))
    embeddings = Embeddings(
        keys, vectors.astype(np.float16), sparse.csr_array(bags.astype(np.float16).astype(np.float32))
    )
    topics = [set(random.choice(TERM_COUNT, 4, replace=False).tolist()) for _ in range(groups.max() + 1)]
    titles = [topics[group] | {int(random.integers(TERM_COUNT))} for group in groups.tolist()]
    sides = [texts(some, random) for some in (titles, titles, [{int(g) % 3} for g in groups], [set()] * count)]
    by_key = {(int(keys[a]), int(keys[b])): p for (a, b), p in scored.items()}
    rarities = random.uniform(0.5, 8, TERM_COUNT).astype(np.float32)
    return Archive(embeddings, Words(*sides), rarities, np.sort(random.uniform(0.3, 1.4, 200)), by_key, [])


def mixed(seed: int, count: int = 150) -> Archive:
    """Return groups of one to twelve questions, with candidates within them and some between."""
    random = np.random.default_rng(seed)
    groups = np.sort(random.integers(0, count // 6, count))[random.permutation(count)]
    scored = {}
    for a, b in combinations(range(count), 2):
        if groups[a] == groups[b] and random.random() < 0.6:
            scored[a, b] = float(np.float32(random.beta(3, 1)))
        elif random.random() < 0.012:
            scored[a, b] = float(np.float32(random.beta(1, 2)))
    return archive_of(groups, scored, noise=0.5, seed=seed)


class Setting(NamedTuple):
    parts: int = 1
    shards: int = 1
    scored_size: int = 1_000


def write(archive: Archive, folder: Path, setting: Setting) -> tuple[Candidates, Table, Table]:
    """Write all that the stage reads."""
    keys, run = archive.embeddings.keys, str(folder)
    terms = write_terms(f"{run}/terms", setting.shards, setting.parts, keys, archive.words, archive.rarities)
    links, apart = (
        [{"left": left, "right": right, "source": "known_link"} for left, right in sorted(pairs)]
        for pairs in (archive.links, archive.apart)
    )
    constraints = table(f"{run}/joined", JOINED_PAIRS, links), table(f"{run}/apart", KEY_PAIRS, apart)
    embeddings = Table(f"{run}/embeddings", None, setting.shards)
    for number in range(setting.shards):
        rows = np.flatnonzero(np.arange(len(keys)) % setting.shards == number)
        some = embeddings_table(archive.embeddings.take(rows), SITES)
        storage.write_table(embeddings.file(number), some, some.schema)
    scored = scored_pairs(f"{run}/scored", archive.scored, setting.parts)
    title_context = table(f"{run}/around", TITLE_CONTEXT, *by_home(title_context_rows(archive), "key", setting.parts))
    read = None if archive.read is None else write_vectors(f"{run}/read", archive.read, setting)
    return Candidates(scored, title_context, terms, embeddings, read), *constraints


def write_vectors(folder: str, read: Embeddings, setting: Setting) -> Shuffled:
    """A reranker's vectors by key, of every so manieth in a file."""
    files = tuple(f"{folder}/part-{number:05d}.arrow" for number in range(setting.shards))
    schema = keyed_vectors(read.vectors.shape[1])
    for number, uri in enumerate(files):
        batches = []
        for part in range(setting.parts):
            rows = np.arange(number, len(read.keys), setting.shards)
            rows = rows[partition_of(read.keys[rows], setting.parts) == part]
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(read.vectors[rows].ravel()), read.vectors.shape[1])
            batches.append(one_batch(pa.table([pa.array(read.keys[rows]), vectors], schema=schema)))
        write_batches(uri, batches, schema)
    return Shuffled(files, schema, setting.parts)


def title_context_rows(archive: Archive) -> list[dict[str, int]]:
    """Return clusters of the questions in candidate pairs only."""
    lists, rows = archive.lists, []
    for key in sorted({key for pair in archive.scored for key in pair}):
        cosines = [archive.title_cosine(key, other) for other in lists[key]]
        rows.append({"key": key, "cosines": sum(round(cosine * 2**20) for cosine in cosines), "listed": len(cosines)})
    return rows


def partitioned(run: Run, archive: Archive, folder: Path, setting: Setting) -> Table:
    scale = PairScorer(model(), archive.reference, K, None if archive.read is None else BY_COSINE)
    cut = Partitioning(THRESHOLD, SITES, MEASURE, scale, setting.scored_size)
    return partition_pairs(run, *write(archive, folder, setting), cut)


def clusters(archive: Archive, folder: Path, setting: Setting) -> tuple[Clusters, Report]:
    run = Run(str(folder), "partition")
    return labels(partitioned(run, archive, folder, setting)), run.report


def labels(made: Table) -> Clusters:
    table = Broadcast(made).read()
    found = dict(zip(table["key"].to_pylist(), table["cluster"].to_pylist(), strict=True))
    assert len(found) == len(table)
    return found


def unlisted_in(archive: Archive, pairs: list[Pair]) -> dict[Pair, float]:
    """Return the probabilities of pairs of which neither question lists the other."""
    rows = [np.searchsorted(archive.embeddings.keys, [pair[side] for pair in pairs]) for side in (0, 1)]
    similarity = pair_scores(MEASURE, *(archive.embeddings.take(some) for some in rows)).astype(np.float32)
    ranks, lifts = np.full(len(pairs), UNLISTED, np.int32), np.zeros(len(pairs), np.float32)
    common = shared(archive.words, *rows, archive.rarities)
    compared = pa.table([*np.array(pairs).T, similarity, ranks, lifts, ranks, lifts, *common], schema=COMPARED)
    features = features_of(compared, TITLE_CONTEXT.empty_table(), archive.reference, K)
    leads = [slow_lead(*pair, archive.title_cosine, archive.lists) for pair in pairs]
    features[:, FEATURES.index("title_lead")] = np.array(leads, np.float32)
    p = model().probabilities(features)
    vectors = {} if archive.read is None else dict(zip(archive.read.keys.tolist(), archive.read.vectors, strict=True))
    for row, pair in enumerate(pairs):
        if {*pair} <= vectors.keys():
            one, other = (vectors[key].astype(np.float64) for key in pair)
            own = compared.slice(row, 1), features[row : row + 1], np.array([one @ other])
            p[row] = expit(BY_COSINE.log_odds(model(), *own))[0]
    return dict(zip(pairs, p.astype(np.float32).tolist(), strict=True))


def weight_of(p: float) -> float:
    return float(logit(min(max(p, 1e-3), 1 - 1e-6)) - logit(THRESHOLD))


def slowly(archive: Archive, scored_size: int = 1_000) -> Clusters:
    """Solve each component with a weight for each pair, and linked questions as one node."""
    linked = {key: min(group) for group in nx.connected_components(nx.Graph(archive.links)) for key in group}
    sure = [pair for pair, p in archive.scored.items() if p >= np.float32(THRESHOLD)]
    found = {}
    for component in nx.connected_components(nx.Graph([*sure, *archive.links])):
        every = list(combinations(sorted(component), 2))
        others = [pair for pair in every if pair not in archive.scored]
        p = unlisted_in(archive, others) if others and len(component) <= scored_size else dict.fromkeys(others, 0.0)
        p.update({pair: archive.scored[pair] for pair in every if pair in archive.scored})
        weights: dict[Pair, float] = defaultdict(float)
        for pair in every:
            one, other = sorted(linked.get(key, key) for key in pair)
            if one != other:
                weights[one, other] += weight_of(p[pair])
        nodes = sorted({linked.get(key, key) for key in component})
        pairs = np.searchsorted(nodes, np.array(list(weights), np.int64).reshape(-1, 2))
        best = partition(len(nodes), pairs, np.array(list(weights.values()), float), 0.0)
        label_of = {node: nodes[label] for node, label in zip(nodes, best.tolist(), strict=True)}
        together = {key: label_of[linked.get(key, key)] for key in component}
        held = nx.Graph([pair for pair in [*sure, *archive.links] if {*pair} <= component])
        held.remove_edges_from([pair for pair in held.edges if together[pair[0]] != together[pair[1]]])
        found.update({key: min(nx.node_connected_component(held, key)) for key in component})
    return found


def sizes(found: Clusters) -> list[int]:
    return sorted(np.unique(list(found.values()), return_counts=True)[1].tolist(), reverse=True)


def component_sizes(archive: Archive) -> list[int]:
    sure = [pair for pair, p in archive.scored.items() if p >= np.float32(THRESHOLD)]
    return sorted((len(one) for one in nx.connected_components(nx.Graph([*sure, *archive.links]))), reverse=True)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("setting", [Setting(), Setting(scored_size=20), Setting(scored_size=2)])
def test_clusters_are_those_of_one_process_that_scores_every_pair(seed: int, setting: Setting, tmp_path: Path) -> None:
    archive = mixed(seed)
    found, report = clusters(archive, tmp_path, setting)
    assert found == slowly(archive, setting.scored_size)
    in_components = component_sizes(archive)
    assert in_components[0] > 20 > in_components[-1]
    assert report.caps[OVER] == sum(size for size in in_components if size > setting.scored_size)
    assert 2 < sizes(found)[0] < in_components[0]
    assert (report.counts[UNLISTED_SCORED] > 0) == (setting.scored_size > 2)
    assert (seed, setting) != (1, Setting()) or found != slowly(archive, 2)  # those pairs decide


def test_pairs_that_no_question_lists_are_scored_by_a_reranker_that_has_read_both(tmp_path: Path) -> None:
    archive, random = mixed(1), np.random.default_rng(6)
    vectors = random.normal(size=(len(archive.keys), 6)) + 0.9
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.flatnonzero(random.random(len(vectors)) < 0.8)  # it has read most questions
    read = archive._replace(read=Embeddings(archive.embeddings.keys[rows], vectors[rows].astype(np.float16)))
    found, _ = clusters(read, tmp_path / "read", Setting(parts=3, shards=2))
    assert found == slowly(read)
    assert found != slowly(archive)


@pytest.mark.parametrize(("parts", "shards", "group"), [(1, 1, 1), (3, 1, 50), (2, 4, 1), (5, 3, 10**9)])
def test_neither_parts_nor_shards_nor_groups_change_the_clusters(
    parts: int, shards: int, group: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "_PAIRS_OF_GROUP", group)
    bare = mixed(3)
    linked = with_links(bare, 8, 3)
    for number, (archive, scored_size) in enumerate([(bare, 25), (linked, 25), (linked, 1_000)]):
        setting, folder = Setting(parts, shards, scored_size), tmp_path / str(number)
        made = partitioned(Run(str(folder), "partition"), archive, folder, setting)
        assert labels(made) == slowly(archive, scored_size)
        groups = made.partitions
        if group == 1:
            assert groups == len(component_sizes(archive))
        else:
            assert (groups == 1) == (group == 10**9)


def test_what_must_be_apart_is_in_no_cluster_together_though_all_speaks_for_it(tmp_path: Path) -> None:
    """Also pairs that nobody lists, in a small and in a large component."""
    cliques = [*combinations(range(6), 2), *combinations(range(6, 26), 2)]
    cliques = [pair for pair in cliques if pair != (6, 25)]
    archive = archive_of(np.repeat([0, 1], (6, 20)), dict.fromkeys(cliques, 0.95), noise=0.1)
    keys = archive.embeddings.keys
    apart = tuple((int(keys[one]), int(keys[other])) for one, other in [(0, 1), (6, 25), (7, 8)])
    found, _ = clusters(archive._replace(apart=apart), tmp_path, Setting(parts=2))
    assert all(found[one] != found[other] for one, other in apart)
    assert len(set(found.values())) == 4


@pytest.mark.parametrize("seed", [1, 2])
def test_random_links_join_all_that_they_connect(seed: int, tmp_path: Path) -> None:
    """Chains of links too; linked questions count as one in all other pairs."""
    archive = with_links(mixed(seed, 90), 25, seed)
    found, _ = clusters(archive, tmp_path, Setting(parts=2))
    assert found == slowly(archive)
    assert all(found[one] == found[other] for one, other in archive.links)
    assert max(len(group) for group in nx.connected_components(nx.Graph(archive.links))) > 2


def with_links(archive: Archive, count: int, seed: int) -> Archive:
    """Random ones; every sixth question lists nothing: it may lack an embedding, or be of a site not searched."""
    lone = {*archive.keys[::-6]}
    scored = {pair: p for pair, p in archive.scored.items() if not {*pair} & lone}
    ends = np.random.default_rng(seed).choice(archive.keys, (count, 2)).tolist()
    links = {(min(pair), max(pair)) for pair in ends if pair[0] != pair[1]}
    assert len(lone & {key for pair in links for key in pair}) > 1
    return archive._replace(scored=scored, links=sorted(links))


def test_without_sure_pairs_there_are_no_clusters(tmp_path: Path) -> None:
    archive = archive_of(np.arange(5), {(0, 1): 0.5, (2, 4): 0.1}, noise=0.5)
    found, report = clusters(archive, tmp_path, Setting(parts=2, shards=2))
    assert found == {}
    assert "groups" not in report.counts
