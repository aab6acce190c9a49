"""The data of the page's explorer."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import combinations, zip_longest
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from explored_run import ASKED, build_explored_run
from fabricated_run import BAD_SITE, CS, LARGE, PAIR, QUESTIONS, TITLES, TRIPLE, cluster_id
from lxml import html
from made_clusters import build_many

from dupq import storage, tables
from dupq.errors import StorageError
from dupq.report import charts, explorer, page
from dupq.report.explorer import explorer_data, script_text
from dupq.runs.queries import Queries
from dupq.runs.reader import open_run
from dupq.runs.views import in_memory


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_explored_run(str(tmp_path_factory.mktemp("explored")))


@pytest.fixture(scope="module")
def data(run: str) -> dict:
    return explorer_data(open_run(run))


def cluster(data: dict, keys: list) -> dict:
    (found,) = [one for one in data["clusters"] if one["id"] == cluster_id(keys)]
    return found


def keys_of(data: dict, places: list[int]) -> list[tuple[str, int]]:
    questions = [data["questions"][place] for place in places]
    return [(data["sites"][one["site"]]["name"], one["id"]) for one in questions]


def test_the_page_holds_the_data_as_text_that_nothing_ends(run: str, data: dict) -> None:
    parsed = html.fromstring(page.render(run))
    held = parsed.get_element_by_id("run-data").text
    parts = json.loads(held)
    assert parts.pop("steps")["pairs"]
    assert parts == json.loads(json.dumps(data))
    assert "<" not in held
    assert TITLES[(CS, 1)] in [question.get("title") for question in data["questions"]]


def test_data_that_would_end_the_script_is_read_back_the_same() -> None:
    hostile = {"</script><!--": ["]]>", "\u2028", "<script>", "\\u003c"]}
    assert "<" not in script_text(hostile)
    assert json.loads(script_text(hostile)) == hostile


def test_the_policy_allows_the_pages_own_script_and_styles_only(run: str) -> None:
    parsed = html.fromstring(page.render(run))
    (policy,) = parsed.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    texts = {"script-src": parsed.xpath("//script[@type='module']")[0].text, "style-src": parsed.find(".//style").text}
    for name, text in texts.items():
        assert allowed[name] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert allowed["default-src"] == "'none'"
    assert "unsafe" not in policy


def test_scripts_make_no_markup_of_data() -> None:
    folder = Path(page.__file__).parent / "static"
    written = "".join(file.read_text() for file in sorted(folder.glob("**/*.js")))
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert name not in written
    assert "fetch(" not in page.page_script()  # what the report holds asks for nothing


def test_a_cluster_has_its_questions_its_pairs_with_the_evidence_and_its_changes(data: dict) -> None:
    assert {one["id"] for one in data["clusters"]} == {cluster_id(c) for c in (LARGE, TRIPLE, PAIR, [(BAD_SITE, 1)])}
    triple = cluster(data, TRIPLE)
    assert keys_of(data, triple["questions"]) == [TRIPLE[2], TRIPLE[0], TRIPLE[1]]  # the canonical one first
    assert (triple["reason"], triple["changes"]) == ("score", ["merged", "split"])
    assert data["compared"]
    assert (cluster(data, PAIR)["changes"], cluster(data, LARGE)["changes"]) == (["new"], [])
    found = {tuple(pair["ends"]): pair for pair in triple["pairs"]}
    sources = {ends: pair["source"] for ends, pair in found.items()}
    assert sources == {(0, 1): "known_link", (0, 2): "encoder", (1, 2): "encoder"}
    assert found[0, 2]["known"]
    assert found[0, 2]["probability"] == 0.88
    assert found[0, 2]["evidence"].startswith("titles share")


def test_the_sample_is_in_the_order_of_its_sheet_with_its_verdicts(data: dict) -> None:
    pairs = [tuple(keys_of(data, asked[:2])) for asked in data["review"]]
    assert pairs == ASKED[::-1]  # the hashes fall
    assert [asked[2] for asked in data["review"]] == ["", "", "", "unsure"]


def text_of(run: str, section: str) -> str:
    return " ".join(html.fromstring(page.render(run)).get_element_by_id(section).text_content().split())


def test_a_run_beyond_the_budget_is_shown_in_part_and_says_so(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = explorer_data(open_run(run), budget=3_000)
    assert 0 < len(small["clusters"]) < 4
    places = {place for one in small["clusters"] for place in one["questions"]}
    places |= {place for row in small["review"] for place in row[:2]}
    assert places == set(range(len(small["questions"])))  # none is held that is not shown
    assert "All 4 clusters of the run are here." in text_of(run, "explore")
    monkeypatch.setattr(page, "explorer_data", partial(explorer_data, budget=3_000))
    assert "of the run's 4 clusters are here" in text_of(run, "explore")


def by_turns(run: str) -> list[str]:
    """Return the ids of the clusters in the order in which the page takes them, found row by row."""
    opened = open_run(run)
    stats = [row for row in opened.cluster_stats.arrow().to_pylist() if row["size"] > 1]
    changed = {row["cluster_id"] for row in opened.changes.arrow().to_pylist()}
    left = {
        (row["site_left"], row["question_id_left"])
        for row in opened.pairs.arrow().to_pylist()
        if row["source"] == "encoder" and row["joined"]
        if (row["title_overlap"] or 1) < 0.25 and (row["text_overlap"] or 1) < 0.5
    }
    alike = {
        row["cluster_id"] for row in opened.clusters.arrow().to_pylist() if (row["site"], row["question_id"]) in left
    }
    orders = [
        sorted(stats, key=lambda row: (-row["size"], row["cluster_id"])),
        sorted(stats, key=lambda row: (row["weakest_link"], row["cluster_id"])),
        sorted(stats, key=lambda row: (-row["weakest_link"], row["cluster_id"])),
    ]
    orders += [[row for row in orders[0] if row["cluster_id"] in ids] for ids in (changed, alike)]
    return list(dict.fromkeys(row["cluster_id"] for turn in zip_longest(*orders) for row in turn if row is not None))


def test_telling_clusters_are_taken_in_turn(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = build_many(str(tmp_path))
    for uri in (run, many):
        found = [one["id"] for one in explorer_data(open_run(uri))["clusters"]]
        assert found == by_turns(uri)
        monkeypatch.setattr(explorer, "CLUSTERS", 2)
        assert [one["id"] for one in explorer_data(open_run(uri))["clusters"]] == found[:2]
        monkeypatch.undo()


def pair(left: int, right: int, source: str, probability: float) -> dict:
    ends = {"site_left": CS, "question_id_left": left, "site_right": CS, "question_id_right": right}
    return {**ends, "source": source, "probability": probability}


def test_a_cluster_with_too_many_pairs_stays_connected_and_keeps_the_least_probable() -> None:
    generator = np.random.default_rng(7)
    rows = [pair(*ends, "encoder", float(generator.random())) for ends in combinations(range(30), 2)]
    rows.sort(key=lambda row: row["probability"])
    shown = explorer.telling(rows)
    assert len(shown) == explorer.PAIRS < len(rows)
    graph = nx.Graph([(row["question_id_left"], row["question_id_right"]) for row in shown])
    assert nx.number_connected_components(graph) == 1
    assert graph.number_of_nodes() == 30
    assert shown[0] == rows[0]


def test_an_excerpt_is_the_beginning_as_plain_text_and_ends_in_no_unfinished_tag() -> None:
    body = "<p>See <a href='javascript:alert(1)'>this</a> &lt;b&gt;</p><pre><code>x = 1</code></pre>"
    assert explorer.excerpt(body) == "See [link] <b> x = 1"
    for long in ("<p>" + "word " * 5_000, "a <b>word</b> " * 600 + "<i" * 4_000):
        assert len(explorer.excerpt(long)) == explorer.EXCERPT + 1
    body = "<p>word</p>" + " " * (explorer._HTML - 20) + "<a href='somewhere'>this</a>" + " " * 100
    assert explorer.excerpt(body) == "word…"


def random_pairs(seed: int) -> list[dict]:
    generator = np.random.default_rng(seed)
    ends = np.sort(generator.integers(1, 60, (80, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]]
    is_near, near = generator.random(len(ends)) < 0.1, ("near_duplicate", 1.0)
    return [
        {**pair(*both, *found), "joined": found == near, "known_link": both[0] % 3 == 0}
        for both, is_one in zip(ends.tolist(), is_near.tolist(), strict=True)
        for found in [near if is_one else ("encoder", round(0.95 * float(generator.random()), 2))]
    ]


def survey(rows: list[dict], threshold: float = 0.0) -> dict | None:
    pairs = in_memory("pairs", pa.Table.from_pylist(rows, tables.PAIRS))
    run = SimpleNamespace(metrics={"sites": {CS: 60}, "threshold": threshold, "links": None}, pairs=pairs)
    return charts.at_thresholds(run, charts.Counts(run))  # type: ignore[arg-type]


@pytest.mark.parametrize(("seed", "most"), [(0, charts.PAIRS), (1, 40)])
def test_thresholds_count_the_components_that_networkx_finds(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "PAIRS", most)
    rows = random_pairs(seed)
    found = survey(rows, 0.445)
    encoders = [row for row in rows if row["source"] == "encoder"]
    for place, threshold in enumerate(found["threshold"]):
        above = [row for row in encoders if np.float32(row["probability"]) >= np.float32(threshold)]
        graph = nx.Graph([(r["question_id_left"], r["question_id_right"]) for r in above])
        graph.add_edges_from((r["question_id_left"], r["question_id_right"]) for r in rows if r["joined"])
        sizes = [len(some) for some in nx.connected_components(graph)]
        expected = (len(above), sum(r["known_link"] for r in above), len(sizes), sum(sizes), max(sizes, default=0))
        columns = ("pairs", "known", "clusters", "questions", "largest")
        assert tuple(found[name][place] for name in columns) == expected
    assert found["run_known"] == sum(r["known_link"] for r in encoders if r["probability"] >= 0.445)
    assert (found["pairs"][-1], found["expected"][-1]) == (0, None)  # of no pairs it is unknown
    above = [r["probability"] for r in encoders if r["probability"] >= found["threshold"][0]]
    assert found["expected"][0] == pytest.approx(np.mean(above), abs=1e-4)
    without = survey([{**row, "known_link": None} for row in rows], 0.5)
    assert ({*without["known"]}, without["run_known"]) == ({None}, None)


def test_no_more_pairs_are_held_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "PAIRS", 40)
    rows = random_pairs(1)
    found = survey(rows)
    first = round(100 * found["threshold"][0])
    steps = [int(100 * row["probability"] + 1e-6) if row["source"] == "encoder" else 100 for row in rows]
    assert sum(step >= first for step in steps) <= 40 < sum(step >= first - 1 for step in steps)
    assert found["left_out"] == sum(10 <= step < first for step in steps)
    monkeypatch.setattr(charts, "PAIRS", 2)  # too few for those that always join
    assert survey(rows) is None


@pytest.mark.parametrize(("own", "said"), [(0.8, "begins at the step at or below"), (0.05, "is below the slider")])
def test_the_slider_says_where_it_begins_and_what_is_left_out(
    own: float, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = build_explored_run(str(tmp_path))
    metrics = storage.read_json(storage.join(one, "metrics.json"))
    storage.write_json(storage.join(one, "metrics.json"), {**metrics, "threshold": own})

    assert said in text_of(one, "another")
    assert "too many for this page" not in text_of(one, "another")
    monkeypatch.setattr(charts, "PAIRS", 30)
    assert "Below 0.42 is 1 more pair" in text_of(one, "another")


def test_a_run_without_an_encoder_or_an_archive_has_an_explorer(run: str, tmp_path: Path) -> None:
    bare = build_explored_run(str(tmp_path))
    manifest = storage.read_json(storage.join(bare, "manifest.json"))
    manifest["inputs"] = {"questions": str(tmp_path / "gone")}
    storage.write_json(storage.join(bare, "manifest.json"), manifest)
    found = explorer_data(open_run(bare))
    assert all(question["gone"] for question in found["questions"])
    assert not any(pair["evidence"] for one in found["clusters"] for pair in one["pairs"])
    assert len(found["questions"]) <= len(QUESTIONS)
    assert "Question 34 about cs" not in page.render(bare)


def test_of_a_large_cluster_the_first_questions_are_held(run: str, data: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "QUESTIONS_HELD", 2)
    part = explorer_data(open_run(run))
    for one, whole in zip(part["clusters"], data["clusters"], strict=True):
        assert keys_of(part, one["questions"]) == keys_of(data, whole["questions"])[:2]
        assert len(one["pairs"]) <= 1


@pytest.mark.parametrize("failures", [2, 3])
def test_a_query_is_asked_three_times_where_a_stream_breaks_off(
    failures: int, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    @contextmanager
    def errors(queries: Queries) -> Iterator[None]:
        asked.append(queries)
        if len(asked) <= failures:
            raise StorageError("the stream broke off")
        yield

    monkeypatch.setattr(Queries, "_errors", errors)
    expected = nullcontext() if failures < 3 else pytest.raises(StorageError, match="broke off")
    with explorer.open_tables(open_run(run)) as found, expected:
        assert found.rows("SELECT count(*) AS count FROM clusters")[0]["count"] > 0
    assert len(asked) == 3
