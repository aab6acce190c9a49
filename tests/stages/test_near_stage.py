"""The whole stage: from texts to verified pairs and representatives."""

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline import without_ray

from benchmarks.all_pairs import all_pairs, edited
from dupq import storage
from dupq.errors import DupqError
from dupq.execution.tasks import Report, run_tasks
from dupq.near_duplicates.asking import Asking, signs_of
from dupq.near_duplicates.band_choice import bands_of
from dupq.near_duplicates.signatures import text_signatures
from dupq.runs.layout import NearFiles
from dupq.settings.near_duplicates import NearDuplicateSettings
from dupq.stages.near_duplicates import bundles, signatures, verify
from dupq.stages.near_duplicates.signatures import make_signatures
from dupq.stages.near_duplicates.verify import find_near_duplicates
from dupq.tables import CONTENTS, RARITIES, REPRESENTATIVES, TEXTS
from dupq.text.contents import content_hashes
from dupq.text.keys import Sites
from dupq.text.terms import document_counts, rarities, terms_of
from dupq.text.token_columns import token_texts

SETTINGS = NearDuplicateSettings()
BANDS, _ = bands_of(SETTINGS)
SITES = Sites(["a.example.com", "b.example.com"])


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
KEYS = np.concatenate([np.arange(1, TEXT_COUNT // 2 + 1), (np.arange(TEXT_COUNT // 2) * 3) | (1 << 48)])


@pytest.fixture(scope="module")
def texts() -> pa.Table:
    column = pa.array(made_up_texts(TEXT_COUNT))
    return untitled(pa.array(KEYS), column)


def untitled(keys: pa.Array, texts: pa.Array) -> pa.Table:
    """Questions whose titles say nothing: their texts decide."""
    return pa.table([keys, pa.array([""] * len(texts), pa.string()), texts], schema=TEXTS)


def write(table: pa.Table, folder: Path, shards: int, written: pa.Array | None = None) -> str:
    """Write the texts, what they say, and how rare their words are; `written` are the titles as they are stored."""
    titles = table["title"].combine_chunks() if written is None else written
    hashes = content_hashes(titles, table["text"].combine_chunks())
    contents = pa.table([table["key"], *map(pa.array, hashes.T), signs_of(titles)], schema=CONTENTS)
    for shard, rows in enumerate(np.array_split(np.arange(len(table)), shards)):
        name = f"part-{shard:05d}.parquet"
        storage.write_table(str(folder / "texts" / name), table.take(pa.array(rows)), TEXTS)
        storage.write_table(str(folder / "contents" / name), contents.take(pa.array(rows)), CONTENTS)
    counts = document_counts(terms_of(pa.concat_arrays([pa.array([], pa.string()), *table["text"].chunks]), "english"))
    rarity = pa.table([pa.array(rarities(counts, len(table)))], schema=RARITIES)
    storage.write_table(str(folder / "rarities.parquet"), rarity, RARITIES)
    return str(folder / "texts")


def files_in(folder: Path, texts: str) -> NearFiles:
    read = (str(Path(texts).parent / name) for name in ("contents", "rarities.parquet"))
    places = ("exchange", "signatures", "verified", "representatives.parquet")
    return NearFiles(texts, *read, *(str(folder / name) for name in places))


def find(files: NearFiles, parts: int = 1) -> tuple[Report, Report]:
    return make_signatures(files, SITES, SETTINGS, parts), find_near_duplicates(files, SETTINGS, parts, "english")


def verified(files: NearFiles) -> list[dict]:
    tables = [pq.read_table(file.uri) for file in storage.list_files(files.verified, ".parquet")]
    return pa.concat_tables(tables).sort_by([("left", "ascending"), ("right", "ascending")]).to_pylist()


def contents(files: NearFiles) -> dict[str, bytes]:
    found = {file.relative: storage.read_bytes(file.uri) for file in storage.list_files(files.verified)}
    return found | {"representatives": storage.read_bytes(files.representatives)}


@pytest.fixture(scope="module")
@without_ray()
def whole(texts: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> tuple[NearFiles, Report]:
    """One shard, one part: what all other ways of cutting the work must give too."""
    folder = tmp_path_factory.mktemp("whole")
    files = files_in(folder, write(texts, folder, 1))
    return files, find(files)[1]


def test_all_true_pairs_are_found_and_no_others(texts: pa.Table, whole: tuple[NearFiles, Report]) -> None:
    column = texts["text"].chunk(0)
    true = {(int(KEYS[i]), int(KEYS[j])): c for (i, j), c in all_pairs(column.to_pylist(), 3, 0.8).items()}
    found = verified(whole[0])
    copies = {row["right"] for row in found if row["source"] == "exact"}
    near = {(row["left"], row["right"]): row["jaccard"] for row in found if row["source"] == "near_duplicate"}
    wanted = {pair for pair in true if not copies & set(pair)}
    assert len(wanted) > 400
    assert set(near) <= wanted
    assert len(near) >= 0.995 * len(wanted)
    assert all(near[pair] == np.float32(true[pair]) for pair in near)


def test_exact_copies_are_a_star_round_the_smallest_key(texts: pa.Table, whole: tuple[NearFiles, Report]) -> None:
    groups: dict[str, list[int]] = {}
    for key, text in zip(texts["key"].to_pylist(), texts["text"].to_pylist(), strict=True):
        groups.setdefault(text, []).append(key)
    del groups[""]
    expected = {(min(keys), key) for keys in groups.values() for key in sorted(keys)[1:]}
    rows = [row for row in verified(whole[0]) if row["source"] == "exact"]
    assert {(row["left"], row["right"]) for row in rows} == expected
    assert len(rows) == len(expected) > 250
    assert {row["jaccard"] for row in rows} == {1.0}


def test_representatives_are_the_smallest_keys_of_networkxs_components(whole: tuple[NearFiles, Report]) -> None:
    graph = nx.Graph([(row["left"], row["right"]) for row in verified(whole[0])])
    expected = {key: min(group) for group in nx.connected_components(graph) for key in group}
    table = pq.read_table(whole[0].representatives)
    assert dict(zip(table["key"].to_pylist(), table["representative"].to_pylist(), strict=True)) == expected
    assert table["key"].to_pylist() == sorted(expected)


def test_candidates_compared_some_at_a_time_have_the_same_coefficients(
    whole: tuple[NearFiles, Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [row for row in verified(whole[0]) if row["source"] == "near_duplicate"]
    pairs = np.array([(row["left"], row["right"]) for row in found])
    monkeypatch.setattr(verify, "_PAIRS_AT_ONCE", 7)
    cuts = bundles.cuts_of(bundles.bundles_of(whole[0].texts), 1)
    coefficients, ask_same = verify._compared(whole[0], 0, cuts, pairs, 0.8, Asking("english", lambda word: True))
    assert coefficients.astype(np.float32).tolist() == [np.float32(row["jaccard"]) for row in found]
    assert np.all(ask_same)


def test_what_was_compared_in_vain_and_what_a_limit_cut_is_counted(whole: tuple[NearFiles, Report]) -> None:
    report = whole[1]
    assert report.rows_in == TEXT_COUNT
    assert report.rows_out == len(verified(whole[0]))
    assert report.counts["candidates under the threshold"] > 0
    assert report.counts["near duplicates whose titles ask something else"] == 0
    assert report.caps == {"buckets over 100 questions": 0}


@pytest.fixture
def small_cuts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The cuts of an archive a thousand times as large."""
    for name, value in vars(bundles).items():
        if name.startswith("_") and "_PER_" in name:
            monkeypatch.setattr(bundles, name, value // 1000)
    return


@pytest.mark.usefixtures("small_cuts")
@pytest.mark.parametrize(("shards", "parts"), [(1, 1), (2, 3), (7, 2), (60, 1)])
def test_shards_parts_and_row_order_do_not_matter(
    texts: pa.Table, whole: tuple[NearFiles, Report], tmp_path: Path, shards: int, parts: int
) -> None:
    order = np.random.default_rng(shards).permutation(len(texts))
    files = files_in(tmp_path, write(texts.take(pa.array(order)), tmp_path, shards))
    first, second = find(files, parts)
    assert verified(files) == verified(whole[0])
    assert pq.read_table(files.representatives) == pq.read_table(whole[0].representatives)
    assert (second.rows_out, second.counts) == (whole[1].rows_out, whole[1].counts)
    assert first.counts["exact copies"] == sum(row["source"] == "exact" for row in verified(files))
    assert len(storage.list_files(files.verified)) == second.tasks - len(bundle_tasks(files)) > 20


def bundle_tasks(files: NearFiles) -> list:
    """The tasks of the second half that verify no slice."""
    found = bundles.bundles_of(files.texts)
    boilerplate = storage.list_files(storage.join(files.exchange, "boilerplate"), ".arrow")
    return [*found, *bundles.band_tasks(BANDS, bundles.cuts_of(found, 1)), *boilerplate, "representatives"]


@pytest.mark.usefixtures("small_cuts")
@pytest.mark.ray
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_bytes_do_not_depend_on_the_number_of_workers(
    texts: pa.Table, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    import ray

    at_once = functools.partial(run_tasks, cpus=ray.cluster_resources()["CPU"] / (workers + 0.01))  # Ray rounds it
    monkeypatch.setattr(signatures, "run_tasks", at_once)
    monkeypatch.setattr(verify, "run_tasks", at_once)
    folder = tmp_path_factory.mktemp(f"workers-{workers}")
    files = files_in(folder, write(texts, folder, 3))
    find(files)
    expected = EXPECTED.setdefault("bytes", contents(files))
    assert contents(files) == expected


EXPECTED: dict[str, dict[str, bytes]] = {}


@pytest.mark.usefixtures("small_cuts")
def test_a_stage_that_was_cut_off_is_finished_to_the_same_bytes_and_redoes_nothing_else(
    texts: pa.Table, tmp_path: Path
) -> None:
    files = files_in(tmp_path, write(texts, tmp_path, 3))
    reports = find(files)
    before = contents(files)
    lost = [
        files.step("bands", 1),
        files.step("candidates", 2),
        storage.join(files.verified, "part-00000/slice-00003.parquet"),
        files.representatives,
    ]
    for uri in lost:
        Path(uri).unlink()
    times = {file.uri: Path(file.uri).stat().st_mtime_ns for file in storage.list_files(str(tmp_path))}
    again = find(files)
    assert contents(files) == before
    changed = {uri for uri, time in times.items() if Path(uri).stat().st_mtime_ns != time}
    signed = storage.join(files.signatures, "part-00001.parquet")
    assert changed == {files.step("wanted", 2), files.step("forests", 3), signed}
    for first, second in zip(reports, again, strict=True):
        assert (first.counts, first.caps, first.rows_out) == (second.counts, second.caps, second.rows_out)


@pytest.mark.ray
@pytest.mark.usefixtures("fresh_workers")
def test_a_bucket_of_100_000_identical_short_questions_is_a_star(texts: pa.Table, tmp_path: Path) -> None:
    keys = np.arange(100_000) + 10_000
    same = pa.array(["how do i install this"] * len(keys))
    table = pa.concat_tables([texts, untitled(pa.array(keys), same)])
    files = files_in(tmp_path, write(table, tmp_path, 4))
    first, second = find(files)
    rows = [row for row in verified(files) if row["left"] == 10_000]
    assert [row["right"] for row in rows] == keys[1:].tolist()
    assert max(first.peak_memory_mb, second.peak_memory_mb) < 600  # of which most are libraries
    exchanged = sum(file.size for file in storage.list_files(files.exchange))
    assert exchanged < 15_000_000


def test_a_bucket_of_20_000_near_copies_is_chained_and_counted(tmp_path: Path) -> None:
    common = " ".join(f"word{number}" for number in range(60))
    column = pa.array([f"{common} {number}" for number in range(20_000)])
    table = untitled(pa.array(np.arange(20_000)), column)
    files = files_in(tmp_path, write(table, tmp_path, 2))
    report = find(files)[1]
    assert 0 < report.caps["buckets over 100 questions"] <= BANDS * 2
    assert 19_999 <= report.rows_out < 20_000 * BANDS * 4
    representatives = pq.read_table(files.representatives)
    assert set(representatives["representative"].to_pylist()) == {0}
    assert len(representatives) == 20_000


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
    files = files_in(tmp_path, write(table, tmp_path, 2, written))
    report = find(files)[1]
    found = {(row["left"], row["right"]) for row in verified(files)}
    assert found == {(2 * row, 2 * row + 1) for row, is_same in enumerate(TITLES.values()) if is_same}
    assert report.counts["near duplicates whose titles ask something else"] == 5


@pytest.mark.usefixtures("small_cuts")
@pytest.mark.parametrize("shards", [1, 3])
def test_a_template_makes_no_near_duplicates(shards: int, tmp_path: Path) -> None:
    template = " ".join(f"word{number}" for number in range(60))
    titles = [f"crash {number} of x{number}" for number in range(10)] + ["bug report"] * 4 + ["lost row"] * 2
    ends = [f"it{number} says{number} no{number}" for number in range(14)] + ["two letters are lost at night"] * 2
    own = " ".join(f"own{number}" for number in range(40))
    texts = [f"{title} {template} {end}" for title, end in zip(titles, ends, strict=True)]
    texts[-2:] = [f"{text} {own} {row}" for row, text in enumerate(texts[-2:])]
    table = pa.table([pa.array(range(16)), pa.array(titles), pa.array(texts)], schema=TEXTS)
    files = files_in(tmp_path, write(table, tmp_path, shards))
    report = find(files)[1]
    assert [(row["left"], row["right"]) for row in verified(files)] == [(14, 15)]
    assert report.counts["shingles of boilerplate"] == 58


def test_a_copy_is_what_is_stored_and_not_its_tokens(tmp_path: Path) -> None:
    written = pa.array(
        ["What does a ++ b do?", "What does a  ++ b do?\n", "What does a -- b do?", "what does a ++ b do"]
    )
    titles = token_texts(written)
    table = pa.table([pa.array(range(4)), titles, titles], schema=TEXTS)
    files = files_in(tmp_path, write(table, tmp_path, 2, written))
    find(files)
    found = {(row["left"], row["right"]): row["source"] for row in verified(files)}
    assert found == {(0, 1): "exact", (0, 3): "near_duplicate"}


@pytest.mark.parametrize("parts", [1, 4])
def test_what_must_be_apart_is_represented_by_different_questions(parts: int, tmp_path: Path) -> None:
    """Also copies of a third one; the others stay with what they are most like."""
    common = " ".join(f"word{number}" for number in range(60))
    texts = pa.array([*[common] * 3, f"{common} a", f"{common} a b", "else", "else"])
    files = files_in(tmp_path, write(untitled(pa.array(range(7)), texts), tmp_path, 2))
    make_signatures(files, SITES, SETTINGS, parts)
    find_near_duplicates(files, SETTINGS, parts, "english", np.array([[1, 2], [0, 4], [3, 5]]))
    found = storage.read_table(files.representatives, REPRESENTATIVES).to_pylist()
    assert {row["key"]: row["representative"] for row in found} == {0: 0, 1: 0, 3: 3, 4: 3, 5: 5, 6: 5}


@pytest.mark.parametrize("column", [[], [""], ["", "", "a b c"]])
def test_nothing_to_find_gives_empty_tables(tmp_path: Path, column: list[str]) -> None:
    table = untitled(pa.array(np.arange(len(column))), pa.array(column, pa.string()))
    files = files_in(tmp_path, write(table, tmp_path, 1))
    find(files)
    assert verified(files) == []
    assert pq.read_table(files.representatives).num_rows == 0


@pytest.mark.parametrize("second", ["the same text", "another text"])
def test_a_question_that_stands_twice_is_named(tmp_path: Path, second: str) -> None:
    column = pa.array(["the same text", "a third", second])
    table = pa.table([pa.array([(1 << 48) | 7, 3, (1 << 48) | 7]), column, column], schema=TEXTS)
    files = files_in(tmp_path, write(table, tmp_path, 2))
    with pytest.raises(DupqError, match=r"b\.example\.com/7 appears more than once"):
        find(files)


def test_a_damaged_exchange_file_is_named(texts: pa.Table, tmp_path: Path) -> None:
    files = files_in(tmp_path, write(texts, tmp_path, 2))
    make_signatures(files, SITES, SETTINGS, 1)
    damaged = files.step("bands", 0)
    Path(damaged).write_bytes(b"no Arrow")
    with pytest.raises(DupqError, match=r"bands/00000\.arrow: not a readable Arrow file"):
        find_near_duplicates(files, SETTINGS, 1, "english")


def test_signatures_are_kept_for_all_but_copies_and_empty_texts(texts: pa.Table, tmp_path: Path) -> None:
    files = files_in(tmp_path, write(texts, tmp_path, 3))
    make_signatures(files, SITES, SETTINGS, 2)
    kept = pa.concat_tables([storage.read_table(file.uri) for file in storage.list_files(files.signatures, ".parquet")])
    found = SITES.pack_columns(kept["site"], kept["question_id"], "").tolist()
    by_key = dict(zip(found, kept["signature"].to_pylist(), strict=True))
    originals: dict[str, int] = {}
    for key, text in sorted(zip(KEYS.tolist(), texts["text"].to_pylist(), strict=True)):
        originals.setdefault(text, key)
    del originals[""]
    assert sorted(found) == sorted(originals.values())
    for text, key in list(originals.items())[:50]:
        assert by_key[key] == text_signatures(pa.array([text]), SETTINGS)[0].tolist()


@pytest.mark.parametrize(
    ("questions", "pieces"), [(40_000, 1), (3_000_000, 60), (12_000_000, 240), (24_000_000, 240), (96_000_000, 480)]
)
def test_pieces_grow_with_the_archive_so_that_requests_do_not_grow_with_its_square(questions: int, pieces: int) -> None:
    whole = bundles.Bundle(0, (), questions)
    assert bundles.cuts_of([whole], 1).slices == pieces
