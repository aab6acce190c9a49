"""The index and what is asked of it, against the run's own tables and the report's data."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from explored_run import build_explored_run
from fabricated_run import CS, LARGE, TITLES, cluster_id
from made_clusters import build_many

from dupq import storage
from dupq.errors import DupqError
from dupq.report import page
from dupq.report.explorer import choice
from dupq.runs.reader import Run, ends_of, open_run
from dupq.serve import clusters, contents, index
from dupq.serve.clusters import Clusters
from dupq.serve.contents import Contents
from dupq.serve.queries import Queries


def indexed(run: Run, path: Path) -> Queries:
    index.build(run, str(path))
    meta = index.read_meta(str(path), run)
    assert meta is not None
    return Queries(str(path), meta)


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Queries]:
    folder = tmp_path_factory.mktemp("explored")
    run = open_run(build_explored_run(str(folder)))
    return run, indexed(run, folder / "index")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Queries]:
    folder = tmp_path_factory.mktemp("many")
    run = open_run(build_many(str(folder)))
    return run, indexed(run, folder / "index")


@pytest.fixture(scope="module")
def facts(many: tuple[Run, Queries]) -> list[dict]:
    """What the tables say of each cluster, put together row by row."""
    run, _ = many
    titles = {
        (row["site"], row["question_id"]): row["title"]
        for row in run.questions.arrow(["site", "question_id", "title"]).to_pylist()
    }
    stats = run.cluster_stats.arrow().to_pylist()
    found = {row["cluster_id"]: {**row, "keys": [], "pairs": [], "kinds": set()} for row in stats}
    home = {}
    for row in run.clusters.arrow().to_pylist():
        key = (row["site"], row["question_id"])
        home[key] = found[row["cluster_id"]]
        home[key]["keys"].insert(0 if row["is_canonical"] else len(home[key]["keys"]), key)
    for row in run.pairs.arrow().to_pylist():
        home[ends_of(row)[0]]["pairs"].append(row)
    for row in run.changes.arrow().to_pylist():
        found[row["cluster_id"]]["kinds"].add(row["kind"])
    for one in found.values():
        one["titles"] = "\n".join(titles[key] for key in one["keys"]).lower()
    return list(found.values())


def all_pages(index: Queries, asked: dict[str, str]) -> list[dict]:
    found = Clusters(index)
    entries: list[dict] = []
    while page := found.page({**asked, "from": str(len(entries))})["entries"]:
        entries += page
    assert found.page(asked)["total"] == len(entries)
    return entries


def rest(page: Callable[[dict[str, str]], dict], cluster: str, name: str, start: int) -> list[dict]:
    """What is on all pages from `start` on."""
    found: list[dict] = []
    while rows := page({"id": cluster, "from": str(start + len(found))})[name]:
        found += rows
    return found


def in_meaning(pair: dict) -> bool:
    is_low = (pair["title_overlap"] or 1) < choice.TITLE_OVERLAP and (pair["text_overlap"] or 1) < choice.TEXT_OVERLAP
    return pair["source"] == "encoder" and is_low


FILTERS: list[tuple[dict[str, str], Callable[[dict], bool]]] = [
    ({}, lambda one: True),
    ({"search": "tree"}, lambda one: "tree" in one["titles"]),
    ({"search": "TREE مسألة"}, lambda one: "tree" in one["titles"] and "مسألة" in one["titles"]),
    ({"search": "ähr"}, lambda one: "ähr" in one["titles"]),
    ({"search": "c++"}, lambda one: "c++" in one["titles"]),
    ({"search": "x"}, lambda one: "x" in one["titles"]),
    ({"search": "l-"}, lambda one: "l-" in one["titles"]),
    ({"search": '"tree" OR *'}, lambda one: False),
    ({"search": "% _ \0"}, lambda one: False),
    ({"site": "0"}, lambda one: any(site == 'bad"><script>.com' for site, _ in one["keys"])),
    ({"site": "1"}, lambda one: any(site == CS for site, _ in one["keys"])),
    ({"size": "two"}, lambda one: one["size"] == 2),
    ({"size": "few"}, lambda one: 3 <= one["size"] <= 5),
    ({"size": "most"}, lambda one: one["size"] > 20),
    ({"certainty": "doubtful"}, lambda one: round(one["weakest_link"], 4) < 0.5),
    ({"certainty": "likely"}, lambda one: 0.7 <= round(one["weakest_link"], 4) < 0.9),
    ({"evidence": "exact"}, lambda one: any(pair["source"] == "exact" for pair in one["pairs"])),
    ({"evidence": "known"}, lambda one: any(pair["known_link"] for pair in one["pairs"])),
    ({"change": "any"}, lambda one: bool(one["kinds"])),
    ({"change": "split"}, lambda one: "split" in one["kinds"]),
    ({"meaning": "true"}, lambda one: any(map(in_meaning, one["pairs"]))),
]


def test_filters_find_what_the_tables_hold(many: tuple[Run, Queries], facts: list[dict]) -> None:
    _, index = many
    counts = []
    for asked, is_wanted in FILTERS:
        found = [entry["cluster"]["id"] for entry in all_pages(index, asked)]
        assert len(set(found)) == len(found)
        assert set(found) == {one["cluster_id"] for one in facts if is_wanted(one)}, asked
        counts.append(len(found))
    assert sum(0 < count < len(facts) for count in counts) > 14  # most of them tell some from others


def test_filters_together_find_what_each_finds(many: tuple[Run, Queries], facts: list[dict]) -> None:
    _, index = many
    for (one, is_one), (other, is_other) in product(FILTERS[1:6], FILTERS[11:]):
        found = {entry["cluster"]["id"] for entry in all_pages(index, one | other)}
        assert found == {fact["cluster_id"] for fact in facts if is_one(fact) and is_other(fact)}, (one, other)


ORDERS = [("largest", "size", True), ("least", "weakest_link", False), ("most", "weakest_link", True)]


@pytest.mark.parametrize(("sort", "column", "falls"), ORDERS)
def test_orders_hold_over_all_pages(many: tuple[Run, Queries], sort: str, column: str, falls: bool) -> None:
    values = [entry["cluster"][column] for entry in all_pages(many[1], {"sort": sort})]
    assert len(values) > 2 * clusters.PAGE
    assert values == sorted(values, reverse=falls)


def test_the_first_clusters_are_telling_in_each_way(many: tuple[Run, Queries], facts: list[dict]) -> None:
    first = [entry["cluster"] for entry in all_pages(many[1], {})[:5]]
    largest = max(one["size"] for one in facts)
    weakest = [round(one["weakest_link"], 4) for one in facts]
    assert first[0]["size"] == largest
    assert {min(weakest), max(weakest)} <= {one["weakest_link"] for one in first}
    assert any(one["changes"] for one in first)


def test_whether_the_open_cluster_is_still_found_is_told(many: tuple[Run, Queries], facts: list[dict]) -> None:
    lists = Clusters(many[1])
    for one in facts[:20]:
        asked = {"size": "two", "open": one["cluster_id"]}
        assert lists.page(asked)["isOpenFound"] == (one["size"] == 2)
    assert not lists.page({})["isOpenFound"]


def test_all_questions_and_pairs_of_a_cluster_come_page_by_page(
    many: tuple[Run, Queries], facts: list[dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, index = many
    for name, value in (("QUESTIONS", 7), ("PAIRS", 5), ("PAGE", 6)):
        monkeypatch.setattr(contents, name, value)
    held = Contents(index, run)
    names = index.sites.names
    for one in sorted(facts, key=lambda one: -one["size"])[:5]:
        shown = held.cluster({"id": one["cluster_id"]})
        questions, pairs = shown["questions"], shown["pairs"]
        questions += rest(held.questions, one["cluster_id"], "questions", 7)
        pairs += rest(held.pairs, one["cluster_id"], "pairs", 0)
        keys = [(names[question["site"]], question["id"]) for question in questions]
        assert keys == [one["keys"][0], *sorted(one["keys"][1:])]
        ends = {tuple(sorted(keys[end] for end in pair["ends"])) for pair in pairs}
        assert ends == {ends_of(row) for row in one["pairs"]}
        assert len(pairs) == one["edges"]
        for pair in pairs:
            if "questions" in pair:
                assert [(names[end["site"]], end["id"]) for end in pair["questions"]] == [
                    keys[end] for end in pair["ends"]
                ]


def test_a_cluster_is_as_in_the_report(explored: tuple[Run, Queries]) -> None:
    run, index = explored
    reported = page.gathered(run)[1]
    held = Contents(index, run)
    for cluster in reported["clusters"]:
        shown = held.cluster({"id": cluster["id"]})
        questions = [reported["questions"][place] for place in cluster["questions"]]
        for question, own in zip(questions, shown["questions"], strict=True):
            assert own["id"] == question["id"]
            assert own["title"] == question["title"]
            assert index.sites.names[own["site"]] == reported["sites"][question["site"]]["name"]
        for pair, own in zip(cluster["pairs"], shown["pairs"], strict=True):
            left, right = (shown["questions"][end] for end in own["ends"])
            asked = {"left": f"{left['site']}.{left['id']}", "right": f"{right['site']}.{right['id']}", "parts": "yes"}
            parts = held.pair(asked)["parts"] if own["source"] == "encoder" else None
            assert {**own, **({"parts": parts} if parts else {})} == pair
        same = ("size", "edges", "bridges", "density", "weakest_link", "mean_probability", "reason", "changes")
        assert {name: shown[name] for name in same} == {name: cluster[name] for name in same}


def test_texts_are_read_from_any_row_group(tmp_path: Path, many: tuple[Run, Queries]) -> None:
    run, index = many
    held = Contents(index, run)
    for row in run.clusters.arrow().to_pylist()[::97]:
        key = f"{index.sites.names.index(row['site'])}.{row['question_id']}"
        assert held.pair({"left": key, "right": key})["left"]["text"] == f"Body {row['question_id']}"


def test_an_index_is_kept_for_its_run_only(tmp_path: Path) -> None:
    run = open_run(build_explored_run(str(tmp_path)))
    path = tmp_path / "kept"
    indexed(run, path)
    success = storage.join(run.uri, "_SUCCESS")
    storage.write_bytes(success, storage.read_bytes(success) + b" ")
    assert index.read_meta(str(path), open_run(run.uri)) is None
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".index")] == []


@pytest.mark.parametrize("content", [b"", b"some notes\n" * 200])
def test_a_file_that_is_no_index_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    run = open_run(build_explored_run(str(tmp_path)))
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(DupqError, match="no index of dupq serve"):
        index.read_meta(str(path), run)
    assert path.read_bytes() == content


def test_a_run_without_its_archive_shows_its_clusters(tmp_path: Path) -> None:
    run = open_run(build_explored_run(str(tmp_path)))
    storage.delete_folder(run.manifest["inputs"]["questions"])
    index = indexed(run, tmp_path / "index")
    shown = Contents(index, run).cluster({"id": cluster_id(LARGE)})
    assert all(question["gone"] for question in shown["questions"])
    assert Clusters(index).page({})["entries"][0]["title"] == "No longer in the archive"


def test_an_archive_that_has_changed_since_shows_no_other_questions_text(tmp_path: Path) -> None:
    run = open_run(build_explored_run(str(tmp_path)))
    held = Contents(indexed(run, tmp_path / "index"), run)
    folder = storage.join(run.manifest["inputs"]["questions"], f"site={CS}")
    first, second = (file.uri for file in storage.list_files(folder))
    storage.write_bytes(first, storage.read_bytes(second))
    assert held.pair({"left": "1.1", "right": "1.2"})["left"] == {"site": 1, "id": 1, "gone": True}


def test_a_run_whose_tables_disagree_is_damaged(tmp_path: Path) -> None:
    run = open_run(build_explored_run(str(tmp_path)))
    storage.delete(storage.list_files(storage.join(run.uri, "clusters"))[0].uri)
    with pytest.raises(DupqError, match="it is damaged"):
        index.build(run, str(tmp_path / "index"))
    assert not (tmp_path / "index").exists()


def test_a_run_on_s3_is_served_as_one_on_the_disk(s3: str, tmp_path: Path) -> None:
    run = open_run(build_explored_run(f"{s3}/served"))
    index = indexed(run, tmp_path / "index")
    held = Contents(index, run)
    shown = held.cluster({"id": cluster_id(LARGE)})
    assert TITLES[(CS, 1)] in [question["title"] for question in shown["questions"]]
    assert held.pair({"left": "1.31", "right": "1.32", "parts": "yes"})["parts"]["dense"] == 0.75
