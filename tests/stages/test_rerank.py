"""The reranker's stage on a small archive, with a stand-in for the model."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import sentence_stand_in
from oracles.slow_evidence import slow_cosine
from run_tables import question_row, table, write_rows
from sentence_stand_in import READ, SIZE, unit, write_model
from test_score_pairs import REFERENCE, SCALE, K, archive_of, write
from test_score_pairs import Archive as Evidence

from dupq import storage
from dupq.archive import Shard
from dupq.clusters import reranking
from dupq.clusters.calibration import FEATURES
from dupq.clusters.decision import scored_table
from dupq.clusters.reranking import ALIKE, RELATED, Reread
from dupq.encoders.sentence_models import WEIGHTS, Reranker, reranker_at, reread_texts
from dupq.job.run import Run
from dupq.job.table import Broadcast, Shards, Table
from dupq.job.tasks import Report
from dupq.neighbours.embeddings import Embeddings, Measure, keyed_embeddings
from dupq.settings.sections import NeighbourSettings
from dupq.stages.calibration import Calibration
from dupq.stages.embeddings import embeddings_table
from dupq.stages.pairs import ScoredPairs, score_pairs
from dupq.stages.partition import Candidates
from dupq.stages.reading import Reading
from dupq.stages.rerank import rerank
from dupq.stages.search.blocks import SearchRequest
from dupq.tables import CALIBRATION_PAIRS, CONTENTS, QUESTIONS, embeddings
from dupq.text.keys import ID_BITS, Sites, key_hashes
from dupq.text.questions import content_hashes

PARTS, SITES = 3, ["b.example.com", "c.example.com"]
WORDS = [f"{first}{second}" for first in "abcdefgh" for second in "aeiou"]
Texts = dict[int, tuple[str, str]]  # title and body of each question, by key
Pair = tuple[int, int]


def texts_for(evidence: Evidence) -> Texts:
    """Half of them begin like one before, so that some cosines are high."""
    random, found = np.random.default_rng(11), dict[int, tuple[str, str]]()
    for place, key in enumerate(evidence.questions):
        words = random.choice(WORDS, 9).tolist()
        if place % 2:
            words = [*list(found.values())[int(random.integers(place))][0].split(), *words[:2]]
        found[key] = " ".join(words), f"<p>{random.choice(WORDS)} x{place}</p>"
    return found


class Found(NamedTuple):
    """What the stage made."""

    report: Report
    rows: dict[Pair, dict[str, Any]]  # of SCORED
    reread: Reread
    read: Embeddings
    bytes: list[bytes]  # of `scored`


class Archive:
    """A run up to its scored pairs: their evidence is chance, and the reranker reads texts that know nothing of it."""

    def __init__(self, folder: Path, evidence: Evidence, texts: Texts, sites: list[str] = SITES, shards: int = 2):
        self.evidence, self.texts, self.uri = evidence, texts, str(folder)
        self.sites = Sites(sites)
        run = Run(self.uri, "pairs")
        written = write(evidence, folder, PARTS)
        self.pairs: ScoredPairs = score_pairs.function(run, *written, SCALE)
        self.first = {(row["left"], row["right"]): row for row in Broadcast(self.pairs.scored).read().to_pylist()}
        random = np.random.default_rng(2)
        vectors = random.normal(size=(len(evidence.questions), 8))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.embedded = Embeddings(np.array(sorted(evidence.questions), np.int64), vectors.astype(np.float16))
        self.shards: list[Shard] = []
        embedded = Table(f"{self.uri}/embeddings", embeddings(8, False), 0)
        contents = Table(f"{self.uri}/work/contents", CONTENTS, 0)
        for number, site in enumerate(sites):
            own = sorted(key for key in evidence.questions if key >> ID_BITS == number)
            for some in np.array_split(np.array(own, np.int64), shards):
                self._write_shard(site, some, embedded, contents)
        embedded, self.contents = (replace(table, partitions=len(self.shards)) for table in (embedded, contents))
        self.candidates = Candidates(self.pairs.scored, self.pairs.title_context, written.terms, embedded)
        self.labelled = sorted(self.first)[::9]
        self.sampled = table(f"{folder}/sampled", CALIBRATION_PAIRS, [self._sampled(*pair) for pair in self.first])

    def _write_shard(self, site: str, keys: np.ndarray, embedded: Table, contents: Table) -> None:
        """With a question that has no embedding, since a near duplicate represents it."""
        number = len(self.shards)
        shard = Shard(number, f"{self.uri}/site={site}/part-{number:05d}.parquet", site)
        self.shards.append(shard)
        rows = np.searchsorted(self.embedded.keys, keys)
        some = embeddings_table(self.embedded.take(rows), self.sites)
        storage.write_table(embedded.file(number), some, some.schema)
        every = [*keys.tolist(), int(self.sites.pack(site, np.array([2_000_000 + number]), "")[0])]
        said = [self.texts.get(key, ("not embedded", "")) for key in every]
        ids = [key & ((1 << ID_BITS) - 1) for key in every]
        write_rows(
            shard.uri,
            [question_row(own, title=title, body_html=body) for own, (title, body) in zip(ids, said, strict=True)],
            QUESTIONS,
        )
        hashes = content_hashes(*(pa.array(column) for column in zip(*said, strict=True)))
        columns = [*(pa.array(column.astype(np.int64)) for column in (np.array(every), *hashes.T))]
        columns += [pa.array([""] * len(every)), pa.array([[]] * len(every), pa.list_(pa.int32()))]
        made = pa.table([*columns, pa.nulls(len(every), pa.int32())], schema=CONTENTS)
        storage.write_table(contents.file(number), made, CONTENTS)

    def _sampled(self, left: int, right: int) -> dict[str, Any]:
        sites, ids = self.sites.unpack(np.array([left, right]))
        sides = {f"site_{side}": site for side, site in zip(("left", "right"), sites, strict=True)}
        sides |= {f"question_id_{side}": int(number) for side, number in zip(("left", "right"), ids, strict=True)}
        place = self.labelled.index((left, right)) if (left, right) in self.labelled else -1
        known = {"is_linked": place >= 0 and place % 2 == 1, "is_judged": place >= 0 and place % 2 == 0}
        rest = {"similarity": 0.5, "pairs": 1.0, "weight": 1.0, "log_rate": 0.0, "features": [0.0] * len(FEATURES)}
        p = float(self.first[left, right]["probability"])
        return {**sides, **rest, **known, "label": place % 3 == 1, "probability": p}

    def ask(self, reranker: Reranker, since: "Archive | None" = None, **more: Any) -> Found:
        """Run the stage as a job does."""
        run = Run(self.uri)
        run.previous = since.uri if since else None
        given = {"code": "removed", "sites": tuple(self.sites.names), "everything": False, "scope": "site"} | more
        settings = NeighbourSettings(k=K, scope=given.pop("scope"))
        calibrated: Any = {"model": SCALE.model.to_dict(), "reference": REFERENCE, "titles_only": False}
        made = rerank(
            run,
            self.pairs,
            self.candidates,
            Calibration(self.sampled, calibrated),
            Shards(tuple(self.shards), tuple(self.sites.names), QUESTIONS),
            self.contents,
            SearchRequest(self.sites.names, settings, Measure(), PARTS),
            Reading(reranker, **given),
        )
        scored = made.scored
        rows = Broadcast(scored).read().to_pylist()
        found = {(row["left"], row["right"]): row for row in rows}
        assert len(found) == len(rows)
        read = [keyed_embeddings(made.read.read(home)) for home in range(PARTS)]
        keys, vectors = (np.concatenate([getattr(one, name) for one in read]) for name in ("keys", "vectors"))
        files = [Path(scored.file(part)).read_bytes() for part in range(scored.partitions)]
        order = np.argsort(keys)
        return Found(run.report, found, Reread(**made.model), Embeddings(keys[order], vectors[order]), files)

    def text(self, key: int) -> str:
        title, body = self.texts[key]
        return reread_texts([title], [body], "removed")[0]

    def texts_of(self, keys: Any) -> list[str]:
        return sorted(map(self.text, keys))


@pytest.fixture
def reranker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reranker:
    sentence_stand_in.install(monkeypatch)
    return reranker_at(str(write_model(tmp_path / "model")), "")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return made(tmp_path / "run")


def made(folder: Path, shards: int = 2) -> Archive:
    evidence = archive_of(3, 60)
    return Archive(folder, evidence, texts_for(evidence), shards=shards)


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """No site is small, and of each ten pairs are read, and of all six questions for the density."""
    for name, value in {"WHOLE": 10, "PAIRS": 10, "SAMPLE": 6}.items():
        monkeypatch.setattr(reranking, name, value)


def likeliest(archive: Archive, *counts: int) -> set[Pair]:
    """So many of each site of the left question, and whatever is as likely as the last."""
    found = set()
    for site, most in enumerate(counts):
        own = {pair: row["probability"] for pair, row in archive.first.items() if pair[0] >> ID_BITS == site}
        least = sorted(own.values(), reverse=True)[:most][-1]
        found |= {pair for pair, p in own.items() if p >= least}
    return found


def sampled(archive: Archive, most: int = 6) -> set[int]:
    """Questions whose hash is among the lowest of all hashes there are, by so many of the archive."""
    keys = sorted(archive.evidence.questions)
    return {key for key in keys if int(key_hashes(np.array([key]))[0]) <= (most << 64) // len(keys)}


@pytest.mark.usefixtures("_few")
def test_ends_of_likely_and_labelled_pairs_and_a_sample_are_read_once(reranker: Reranker, archive: Archive) -> None:
    found = archive.ask(reranker)
    likely, sample = likeliest(archive, 10, 10), sampled(archive)
    wanted = {key for pair in {*likely, *archive.labelled} for key in pair} | sample
    assert sorted(READ) == archive.texts_of(wanted)
    assert found.report.rows_in == len(wanted) < len(archive.evidence.questions)
    assert found.report.rows_out == len(archive.first) == len(found.rows)  # no pair is found beside
    assert found.read.keys.tolist() == sorted(wanted)
    parts = [{key for pair in pairs for key in pair} for pairs in (likely, archive.labelled)]
    for own, others in ((parts[0], parts[1] | sample), (parts[1], parts[0] | sample), (sample, parts[0] | parts[1])):
        assert own - others  # so that each is needed


@pytest.mark.parametrize("setting", ["small sites", "read=all"])
def test_of_small_sites_and_on_demand_all_embedded_questions_are_read_once(
    setting: str, reranker: Reranker, archive: Archive, request: pytest.FixtureRequest
) -> None:
    if setting == "read=all":
        request.getfixturevalue("_few")
    found = archive.ask(reranker, everything=setting == "read=all")
    assert sorted(READ) == archive.texts_of(archive.evidence.questions)
    assert found.report.rows_in == len(archive.evidence.questions)
    for key, vector in zip(found.read.keys.tolist(), found.read.vectors, strict=True):
        assert (vector == unit(archive.text(key))).all()


def test_one_site_is_small_and_read_whole_the_other_is_not(
    reranker: Reranker, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [sum(key >> ID_BITS == site for key in archive.evidence.questions) for site in (0, 1)]
    small = int(np.argmin(sizes))
    assert sizes[small] < sizes[1 - small]
    for name, value in {"WHOLE": sizes[small], "PAIRS": 1, "SAMPLE": 0}.items():
        monkeypatch.setattr(reranking, name, value)
    archive.ask(reranker)
    assert sizes[1 - small] >= 24
    likely = likeliest(archive, *(size // 6 for size in sizes))  # more than 1
    ends = {key for pair in {*likely, *archive.labelled} for key in pair}
    wanted = {key for key in archive.evidence.questions if key >> ID_BITS == small} | ends
    assert sorted(READ) == archive.texts_of(wanted)
    assert len(wanted) < len(archive.evidence.questions)


@pytest.mark.parametrize("everything", [False, True])
def test_sites_that_are_not_named_are_not_read(everything: bool, reranker: Reranker, archive: Archive) -> None:
    """They are in a language that the model does not know."""
    found = archive.ask(reranker, sites=(SITES[1],), everything=everything)
    own = [key for key in archive.evidence.questions if key >> ID_BITS == 1]
    assert sorted(READ) == archive.texts_of(own)
    for pair, row in found.rows.items():
        is_read = pair[0] >> ID_BITS == pair[1] >> ID_BITS == 1
        assert (row["reranker"] is not None) is is_read
        if not is_read:
            assert row == archive.first[pair]


@pytest.mark.usefixtures("_few")
def test_cosines_move_the_probabilities_of_pairs_of_which_both_were_read(reranker: Reranker, archive: Archive) -> None:
    found = archive.ask(reranker)
    compared, title_context = (
        Broadcast(table).read() for table in (archive.pairs.compared, archive.pairs.title_context)
    )
    twin = scored_table(compared, title_context, SCALE._replace(reread=found.reread), found.read)
    expected = {(row["left"], row["right"]): row for row in twin.to_pylist()}
    read, moved = set(found.read.keys.tolist()), 0
    for pair, row in found.rows.items():
        before = archive.first[pair]
        rest = {name: value for name, value in row.items() if name not in ("probability", "reranker")}
        assert rest == {name: before[name] for name in rest}
        if {*pair} <= read:
            one, other = (unit(archive.text(key)).astype(np.float64) for key in pair)
            assert row["reranker"] == pytest.approx(one @ other, abs=2e-3)
            moved += row["probability"] != before["probability"]
        else:
            assert (row["probability"], row["reranker"]) == (before["probability"], None)
        assert row == expected[pair]
    assert 10 < moved < len(found.rows)


@pytest.mark.parametrize("scope", ["site", "all"])
def test_in_small_sites_the_reranker_s_nearest_are_candidates(scope: str, reranker: Reranker, archive: Archive) -> None:
    found = archive.ask(reranker, scope=scope)
    keys = sorted(archive.evidence.questions)
    vectors = {key: unit(archive.text(key)).astype(np.float64) for key in keys}
    near: set[Pair] = set()
    surely: set[Pair] = set()
    for key in keys:
        cosines = {
            other: float(vectors[key] @ vectors[other])
            for other in keys
            if other != key and (scope == "all" or other >> ID_BITS == key >> ID_BITS)
        }
        fifth = sorted(cosines.values(), reverse=True)[4]
        near |= {(min(key, other), max(key, other)) for other, one in cosines.items() if one >= fifth - 1e-3}
        surely |= {(min(key, other), max(key, other)) for other, one in cosines.items() if one > fifth + 1e-3}
    new = found.rows.keys() - archive.first.keys()
    assert archive.first.keys() <= found.rows.keys()
    assert surely - archive.first.keys() <= new <= near
    assert len(surely - archive.first.keys()) > 20
    rarity, embedded = archive.evidence.rarities.tolist(), archive.embedded
    rows = {int(key): row for row, key in enumerate(embedded.keys)}
    for left, right in new:
        row, sides = found.rows[left, right], (archive.evidence.questions[key] for key in (left, right))
        one, other = sides
        assert (row["rank_left"], row["rank_right"]) == (None, None)
        cosine = float(np.dot(*(embedded.vectors[rows[key]].astype(np.float64) for key in (left, right))))
        assert row["similarity"] == pytest.approx(cosine, abs=1e-3)
        assert row["title_overlap"] == pytest.approx(slow_cosine(one.title, other.title, rarity), abs=1e-5)
        assert row["text_overlap"] == pytest.approx(slow_cosine(one.text, other.text, rarity), abs=1e-5)
        assert row["reranker"] == pytest.approx(float(vectors[left] @ vectors[right]), abs=2e-3)


@pytest.mark.parametrize("scope", ["site", "all"])
def test_the_density_is_that_of_the_sample_within_the_scope_of_the_search(
    scope: str, reranker: Reranker, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WHOLE": 10, "PAIRS": 10, "SAMPLE": 40}.items():
        monkeypatch.setattr(reranking, name, value)
    archive.ask(reranker, scope=scope)
    vectors = {key: unit(archive.text(key)).astype(np.float64) for key in sampled(archive, 40)}
    pairs = [pair for pair in combinations(vectors, 2) if scope == "all" or pair[0] >> ID_BITS == pair[1] >> ID_BITS]
    cosines = np.array([vectors[one] @ vectors[other] for one, other in pairs])
    expected = {
        "questions": len(vectors),
        "alike": (cosines >= ALIKE).sum(),
        "related": ((cosines >= RELATED[0]) & (cosines < RELATED[1])).sum(),
    }
    assert storage.read_json(f"{archive.uri}/work/rerank/density.json") == expected
    assert min(expected.values()) > 0


def test_only_the_model_of_the_prior_tells_an_archive_full_of_duplicates(reranker: Reranker, tmp_path: Path) -> None:
    own, unknown = (made(tmp_path / name) for name in ("own", "unknown"))
    assert own.ask(reranker._replace(weights=WEIGHTS)).reread.excess > 0
    found = unknown.ask(reranker).reread
    assert found.excess == 0
    assert found.factor != 1


def test_results_are_the_same_whatever_the_shards(reranker: Reranker, tmp_path: Path) -> None:
    few, many = (made(tmp_path / str(shards), shards).ask(reranker) for shards in (1, 4))
    assert few.bytes == many.bytes
    assert (few.read.keys == many.read.keys).all()
    assert (few.read.vectors == many.read.vectors).all()


def test_a_later_night_reads_only_what_is_new_or_changed(reranker: Reranker, tmp_path: Path) -> None:
    first = made(tmp_path / "first")
    first.ask(reranker)
    own, texts = first.evidence, dict(first.texts)
    evidence = own._replace(
        questions={9: next(iter(own.questions.values())), **own.questions}, lists={9: [], **own.lists}
    )
    texts[max(texts)], texts[9] = ("blue bread", "<p>now</p>"), ("another", "")
    second, fresh = (Archive(tmp_path / name, evidence, texts, shards=3) for name in ("second", "fresh"))
    READ.clear()
    found = second.ask(reranker, first)
    assert sorted(READ) == ["another", "blue bread now"]
    assert found.report.counts["vectors as in the earlier run"] == found.report.rows_in - 2
    READ.clear()
    again = fresh.ask(reranker)
    assert len(READ) == found.report.rows_in == len(texts)
    assert found.bytes == again.bytes
    assert (found.read.vectors == again.read.vectors).all()


@pytest.mark.parametrize("changed", ["model", "code", "vectors"])
def test_nothing_is_taken_from_another_reranker_or_what_is_damaged(
    changed: str, reranker: Reranker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (made(tmp_path / name) for name in ("first", "second"))
    first.ask(reranker)
    if changed == "model":
        reranker = reranker_at(str(write_model(tmp_path / "other", weights="others")), "")
    if changed == "vectors":
        file = storage.list_files(f"{first.uri}/work/rerank/vectors", ".parquet")[0]
        storage.write_bytes(file.uri, b"damaged")
    READ.clear()
    found = second.ask(reranker, first, code="kept" if changed == "code" else "removed")
    assert len(READ) == found.report.rows_in
    why = {
        "model": "its results were made with another model",
        "code": "its results were made with another code",
        "vectors": "it has lost some",
    }
    assert f"rerank: nothing is taken from {first.uri}: {why[changed]}" in capsys.readouterr().out


def test_an_archive_without_embedded_questions_needs_no_model(reranker: Reranker, tmp_path: Path) -> None:
    empty = archive_of(3, 60)._replace(questions={}, lists={}, above=[], scores={})
    found = Archive(tmp_path / "run", empty, {}).ask(reranker._replace(folder="nowhere"))
    assert (found.report.rows_in, found.report.rows_out, found.rows) == (0, 0, {})
    assert found.read.vectors.shape == (0, SIZE)
