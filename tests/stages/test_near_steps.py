"""The steps from texts to verified pairs and representatives: each of small tables, and all together."""

import random
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from inline import without_ray

from benchmarks.all_pairs import all_pairs, edited
from dupq import storage
from dupq.job.run import Run
from dupq.job.table import Broadcast, Table
from dupq.job.tasks import Report
from dupq.near_duplicates import pairing
from dupq.near_duplicates.minhash import bands_of
from dupq.settings.sections import NearDuplicateSettings, NeighbourSettings
from dupq.stages import near_duplicates as steps
from dupq.stages.near_duplicates import find_near_duplicates, make_signatures
from dupq.stages.texts import TextTables
from dupq.tables import CONTENTS, RARITIES, TEXTS
from dupq.text.keys import Sites
from dupq.text.questions import content_hashes, document_counts, rarities, terms_of
from dupq.text.token_arrays import token_texts
from dupq.text.written import written_titles

SETTINGS = NearDuplicateSettings()
BANDS, _ = bands_of(SETTINGS)
SITES = Sites(["a.example.com", "b.example.com"])
NOBODY = np.zeros((0, 2), np.int64)


def made_up_texts(count: int) -> list[str]:
    """Texts of which a third are edits, copies or empty; one is copied 200 times."""
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghij", k=5)) for _ in range(3000)]
    texts = [" ".join(generator.choices(words, k=generator.randrange(5, 80))) for _ in range(count * 2 // 3)]
    originals = texts[: count // 5]
    shares = (0.005, 0.01, 0.02, 0.04, 0.08)
    while len(texts) < count - 300:
        texts.append(edited(generator.choice(originals), generator.choice(shares), words, generator))
    texts += generator.choices(originals, k=80) + [texts[0]] * 200 + [""] * 20
    generator.shuffle(texts)
    return texts


TEXT_COUNT = 3000
KEYS_OF = np.concatenate([np.arange(1, TEXT_COUNT // 2 + 1), (np.arange(TEXT_COUNT // 2) * 3) | (1 << 48)])


@pytest.fixture(scope="module")
def texts() -> pa.Table:
    return untitled(pa.array(KEYS_OF), pa.array(made_up_texts(TEXT_COUNT)))


def untitled(keys: pa.Array, texts: pa.Array) -> pa.Table:
    """Questions whose titles say nothing: their texts decide."""
    return pa.table([keys, pa.array([""] * len(texts), pa.string()), texts], schema=TEXTS)


def contents_of(texts: pa.Table, written: pa.Array | None = None) -> pa.Table:
    """What the questions say; `written` are the titles as they are stored."""
    titles = texts["title"].combine_chunks() if written is None else written
    hashes = content_hashes(titles, texts["text"].combine_chunks())
    nothing = [pa.array([[]] * len(texts), pa.list_(pa.int32())), pa.nulls(len(texts), pa.int32())]
    return pa.table(
        [texts["key"], *map(pa.array, hashes.T), written_titles(titles, "english"), *nothing], schema=CONTENTS
    )


def rarities_of(texts: pa.Table) -> pa.Table:
    counts = document_counts(terms_of(pa.concat_arrays([pa.array([], pa.string()), *texts["text"].chunks]), "english"))
    return pa.table([pa.array(rarities(counts, len(texts)))], schema=RARITIES)


def stored(folder: str, table: pa.Table, schema: pa.Schema, partitions: int = 1) -> Table:
    made = Table(folder, schema, partitions, rows=len(table))
    for part, rows in enumerate(np.array_split(np.arange(len(table)), partitions)):
        storage.write_table(made.file(part), table.take(pa.array(rows)), schema)
    return made


class Found(NamedTuple):
    """What all steps together find."""

    verified: list[dict]
    representatives: dict[int, int]
    signatures: Table
    reports: tuple[Report, Report]

    @property
    def pairs(self) -> set[tuple[int, int]]:
        return {(row["left"], row["right"]) for row in self.verified}


def find(
    texts: pa.Table,
    folder: Path,
    shards: int = 2,
    partitions: int = 1,
    written: pa.Array | None = None,
    apart: np.ndarray = NOBODY,
    **near: Any,
) -> Found:
    said = stored(f"{folder}/contents", contents_of(texts, written), CONTENTS, shards)
    made = TextTables(stored(f"{folder}/texts", texts, TEXTS, shards), said, tuple(SITES.names))
    first, second = (Run(str(folder), "near_duplicates") for _ in range(2))
    signed = make_signatures.function(first, made, SETTINGS, SITES, partitions, **near)
    rarity = stored(f"{folder}/rarities", rarities_of(texts), RARITIES)
    told = SETTINGS, "english", apart, near.get("scopes")
    verified, copies, _ = find_near_duplicates.function(second, made, signed, rarity, *told)
    assert verified.partitions == partitions
    pairs = Broadcast(verified).read().sort_by([("left", "ascending"), ("right", "ascending")]).to_pylist()
    represented = copies.read(0)
    assert represented["key"].to_pylist() == sorted(represented["key"].to_pylist())
    owners = dict(zip(*(column.to_pylist() for column in represented.columns), strict=True))
    signatures = Table(f"{folder}/work/signatures", None, shards)
    return Found(pairs, owners, signatures, (first.report, second.report))


@pytest.mark.parametrize(
    ("neighbours", "groups"),
    [
        (NeighbourSettings(), ()),
        (NeighbourSettings(scope="site"), (0, 1)),
        (NeighbourSettings(sites=("b.example.com",)), (0, 1)),
        (NeighbourSettings(sites=("a.example.com", "b.example.com")), (1, 1)),
    ],
)
def test_sites_that_are_not_compared_have_no_near_duplicates_in_common(
    neighbours: NeighbourSettings, groups: tuple[int, ...], tmp_path: Path
) -> None:
    """Else a question of one site represents one of another, which is then compared with none of its own site."""
    words = [f"word{number}" for number in range(60)]
    copy, edit = " ".join(words), " ".join(words[1:])
    keys = [1, 2, 3, *((1 << 48) | number for number in (1, 2, 3))]
    archive = untitled(pa.array(keys), pa.array([copy, copy, edit] * 2))
    assert steps.groups_of(neighbours, SITES.names) == groups
    found = find(archive, tmp_path, groups=groups)
    are_apart = len(set(groups)) == 2
    assert {(left >> 48, right >> 48) for left, right in found.pairs} == (
        {(0, 0), (1, 1)} if are_apart else {(0, 0), (0, 1)}
    )
    assert set(found.representatives.values()) == ({1, (1 << 48) | 1} if are_apart else {1})


@pytest.fixture(scope="module")
@without_ray()
def whole(texts: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """One shard, one partition: what all other ways of cutting the work must give too."""
    return find(texts, tmp_path_factory.mktemp("whole"), shards=1)


def test_all_true_pairs_are_found_and_no_others(texts: pa.Table, whole: Found) -> None:
    """Of 20,000 real texts benchmarks/near_duplicates.py measures the same."""
    keys, column = KEYS_OF.tolist(), texts["text"].to_pylist()
    true = {(keys[i], keys[j]): np.float32(c) for (i, j), c in all_pairs(column, 3, 0.8).items()}
    near = {(row["left"], row["right"]): np.float32(row["jaccard"]) for row in whole.verified}
    assert {pair: true[pair] for pair in near} == near  # so none is under the threshold
    copies = {row["right"] for row in whole.verified if row["source"] == "exact"}
    wanted = {pair for pair in true if not copies & {*pair}}  # a pair of copies represents those of all their copies
    assert len(wanted) > 400
    assert len(wanted & near.keys()) >= 0.995 * len(wanted)
    components = nx.connected_components(nx.Graph(list(near)))
    assert whole.representatives == {key: min(group) for group in components for key in group}
    first, second = whole.reports
    assert (first.rows_in, first.rows_out, second.rows_in) == (TEXT_COUNT,) * 3
    assert second.rows_out == len(whole.verified)
    assert second.counts["candidates under the threshold"] > 0
    assert second.counts["near duplicates whose titles ask something else"] == 0
    assert second.caps == {"buckets over 100 questions": 0}


def test_all_exact_copies_are_found(texts: pa.Table, whole: Found) -> None:
    groups: dict[str, list[int]] = {}
    for key, text in zip(texts["key"].to_pylist(), texts["text"].to_pylist(), strict=True):
        groups.setdefault(text, []).append(key)
    del groups[""]
    expected = {(min(keys), key) for keys in groups.values() for key in sorted(keys)[1:]}
    rows = [row for row in whole.verified if row["source"] == "exact"]
    assert {(row["left"], row["right"]) for row in rows} == expected
    assert len(rows) == len(expected) > 250
    assert {row["jaccard"] for row in rows} == {1.0}


@pytest.fixture
def small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cuts of an archive a thousand times as large."""
    for name, value in vars(steps).items():
        if name.startswith("_") and "_PER_" in name:
            monkeypatch.setattr(steps, name, value // 1000)
    monkeypatch.setattr(pairing, "_PAIRS_AT_ONCE", 100)


@pytest.mark.usefixtures("small_cuts")
@pytest.mark.parametrize(("shards", "partitions"), [(1, 1), (20, 3)])
def test_shards_partitions_and_row_order_do_not_matter(
    texts: pa.Table, whole: Found, tmp_path: Path, shards: int, partitions: int
) -> None:
    order = np.random.default_rng(shards).permutation(len(texts))
    found = find(texts.take(pa.array(order)), tmp_path, shards, partitions)
    assert found.verified == whole.verified
    assert found.representatives == whole.representatives
    for one, other in zip(found.reports, whole.reports, strict=True):
        assert (one.rows_out, one.counts) == (other.rows_out, other.counts)
    assert found.reports[1].tasks > 20


def test_a_bucket_of_5_000_near_copies_is_chained_and_counted(tmp_path: Path) -> None:
    common, count = " ".join(f"word{number}" for number in range(60)), 5_000
    column = pa.array([f"{common} {number}" for number in range(count)])
    found = find(untitled(pa.array(np.arange(count)), column), tmp_path)
    report = found.reports[1]
    assert 0 < report.caps["buckets over 100 questions"] <= BANDS * 2
    assert count - 1 <= report.rows_out < count * BANDS * 4
    assert found.representatives == dict.fromkeys(range(count), 0)


ASKED = "How do I file taxes for 2013?"
TITLES = {
    "how do I file a tax  for 2013": True,  # the same but for case, form and white space
    "How do I file taxse for 2013?": True,  # a typing error
    "": True,
    "How do I file taxes for 2014?": False,  # another number
    "How do I file taxes?": False,
    "How do I not file taxes for 2013?": False,
    "How do I file taxes for > 2013?": False,
    "Taxes for 2013: how do I file?": False,  # another order
}


def test_near_duplicates_have_titles_that_ask_the_same_or_one_has_none(tmp_path: Path) -> None:
    written = pa.array([title for other in TITLES for title in (ASKED, other)])
    titles = token_texts(written)
    bodies = [" ".join(f"word{row // 2}_{number}" for number in range(60)) for row in range(len(written))]
    texts = pa.array([f"{title} {body}".strip() for title, body in zip(titles.to_pylist(), bodies, strict=True)])
    table = pa.table([pa.array(range(len(written))), titles, texts], schema=TEXTS)
    found = find(table, tmp_path, written=written)
    assert found.pairs == {(2 * row, 2 * row + 1) for row, is_same in enumerate(TITLES.values()) if is_same}
    assert found.reports[1].counts["near duplicates whose titles ask something else"] == 5


@pytest.mark.usefixtures("small_cuts")
def test_a_template_makes_no_near_duplicates(tmp_path: Path) -> None:
    template = " ".join(f"word{number}" for number in range(60))
    titles = [f"crash {number} of x{number}" for number in range(10)] + ["bug report"] * 4 + ["lost row"] * 2
    ends = [f"it{number} says{number} no{number}" for number in range(14)] + ["two letters are lost at night"] * 2
    own = " ".join(f"own{number}" for number in range(40))
    texts = [f"{title} {template} {end}" for title, end in zip(titles, ends, strict=True)]
    texts[-2:] = [f"{text} {own} {row}" for row, text in enumerate(texts[-2:])]
    table = pa.table([pa.array(range(16)), pa.array(titles), pa.array(texts)], schema=TEXTS)
    found = find(table, tmp_path, 3)
    assert found.pairs == {(14, 15)}
    assert found.reports[1].counts["shingles of boilerplate"] == 58


def test_a_copy_is_what_is_stored_and_not_its_tokens(tmp_path: Path) -> None:
    written = pa.array(
        ["What does a ++ b do?", "What does a  ++ b do?\n", "What does a -- b do?", "what does a ++ b do"]
    )
    titles = token_texts(written)
    table = pa.table([pa.array(range(4)), titles, titles], schema=TEXTS)
    found = find(table, tmp_path, written=written).verified
    assert {(row["left"], row["right"]): row["source"] for row in found} == {(0, 1): "exact", (0, 3): "near_duplicate"}


def test_what_must_be_apart_is_represented_by_different_questions(tmp_path: Path) -> None:
    """Also copies of a third one; the others stay with what they are most like."""
    common = " ".join(f"word{number}" for number in range(60))
    texts = pa.array([*[common] * 3, f"{common} a", f"{common} a b", "else", "else"])
    apart = np.array([[1, 2], [0, 4], [3, 5]])
    found = find(untitled(pa.array(range(7)), texts), tmp_path, partitions=4, apart=apart)
    assert found.representatives == {0: 0, 1: 0, 3: 3, 4: 3, 5: 5, 6: 5}


@pytest.mark.parametrize("column", [[], ["", "", "a b c"]])
def test_nothing_to_find_gives_empty_tables(tmp_path: Path, column: list[str]) -> None:
    found = find(untitled(pa.array(np.arange(len(column))), pa.array(column, pa.string())), tmp_path, 1)
    assert (found.verified, found.representatives) == ([], {})
