"""The answers of the server, compared with the run's tables and the report's data; and whom it refuses."""

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from explored_run import WORK, build_explored_run
from fabricated_run import CS, TITLES, TRAVEL, TRIPLE, cluster_id
from lxml import html
from made_clusters import build_many

from dupq import storage
from dupq.evaluation.verdicts import Verdict, last_verdicts
from dupq.report import explorer
from dupq.report import page as report
from dupq.report.explorer import explorer_data
from dupq.runs.reader import Run, ends_of, open_run
from dupq.serve import contents
from dupq.serve.contents import Contents, RequestError
from dupq.serve.server import Answer, Door, answer


@contextlib.contextmanager
def opened(uri: str) -> Iterator[Contents]:
    run = open_run(uri)
    with explorer.open_tables(run) as found:
        yield Contents(run, found)


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contents]:
    with opened(build_explored_run(str(tmp_path_factory.mktemp("explored")))) as held:
        yield held


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contents]:
    with opened(build_many(str(tmp_path_factory.mktemp("many")))) as held:
        yield held


def facts_of(run: Run) -> list[dict]:
    """Collect the facts of each cluster from the tables, row by row."""
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


@pytest.fixture(scope="module")
def facts(many: Contents) -> list[dict]:
    return facts_of(many.run)


def all_pages(held: Contents, asked: dict[str, str]) -> list[dict]:
    entries: list[dict] = []
    while page := held.clusters({**asked, "from": str(len(entries))})["entries"]:
        entries += page
    assert held.clusters(asked)["total"] == len(entries)
    return entries


def in_meaning(pair: dict) -> bool:
    title, text = pair["title_overlap"] or 1, pair["text_overlap"] or 1
    return pair["source"] == "encoder" and title < explorer.TITLE_OVERLAP and text < explorer.TEXT_OVERLAP


FILTERS: list[tuple[dict[str, str], Callable[[dict], bool]]] = [
    ({}, lambda one: True),
    ({"search": "tree"}, lambda one: "tree" in one["titles"]),
    ({"search": "TREE مسألة"}, lambda one: "tree" in one["titles"] and "مسألة" in one["titles"]),
    ({"search": "ähr"}, lambda one: "ähr" in one["titles"]),
    ({"search": '"tree" OR *'}, lambda one: False),
    ({"search": "% _ '"}, lambda one: False),
    ({"search": "10"}, lambda one: any(number == 10 for _, number in one["keys"])),
    ({"search": f"{CS}/10"}, lambda one: (CS, 10) in one["keys"]),
    ({"site": "0"}, lambda one: any(site == 'bad"><script>.com' for site, _ in one["keys"])),
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


def test_filters_find_what_the_tables_hold_alone_and_together(many: Contents, facts: list[dict]) -> None:
    counts = []
    for (one, is_one), (other, is_other) in [*product(FILTERS, FILTERS[:1]), *product(FILTERS[1:3], FILTERS[-5:])]:
        found = [entry["cluster"]["id"] for entry in all_pages(many, one | other)]
        assert len(set(found)) == len(found)
        assert set(found) == {fact["cluster_id"] for fact in facts if is_one(fact) and is_other(fact)}, (one, other)
        counts.append(len(found))
    assert sum(0 < count < len(facts) for count in counts) > 14  # most of them tell some from others


def test_orders_hold_over_all_pages(many: Contents, facts: list[dict]) -> None:
    sorts = {"largest": ("size", True), "least": ("weakest_link", False), "most": ("weakest_link", True)}
    for sort, (column, falls) in sorts.items():
        values = [entry["cluster"][column] for entry in all_pages(many, {"sort": sort})]
        assert len(values) > 2 * contents.PAGE
        assert values == sorted(values, reverse=falls)
    first = [entry["cluster"] for entry in many.clusters({})["entries"][:3]]
    weakest = [round(one["weakest_link"], 4) for one in facts]
    assert first[0]["size"] == max(one["size"] for one in facts)
    assert {min(weakest), max(weakest)} <= {one["weakest_link"] for one in first}
    for one in facts[:20]:
        asked = {"size": "two", "open": one["cluster_id"]}
        assert many.clusters(asked)["isOpenFound"] == (one["size"] == 2)


def test_all_questions_and_pairs_of_a_cluster_come_page_by_page(
    many: Contents, facts: list[dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "QUESTIONS_HELD", 7)
    monkeypatch.setattr(contents, "PAGE", 6)
    held = Contents(many.run, many._queries)
    for one in sorted(facts, key=lambda one: -one["size"])[:5]:
        shown = held.cluster({"id": one["cluster_id"]})
        questions, pairs, start = shown["questions"], shown["pairs"], 0
        while more := held.more({"id": one["cluster_id"], "from": str(len(questions))})["questions"]:
            questions += more
        while more := held.more({"id": one["cluster_id"], "from": str(start)})["pairs"]:
            pairs, start = pairs + more, start + len(more)
        keys = [(held._sites[question["site"]], question["id"]) for question in questions]
        assert keys == [one["keys"][0], *sorted(one["keys"][1:])]
        assert {tuple(sorted(keys[end] for end in pair["ends"])) for pair in pairs} == {*map(ends_of, one["pairs"])}
        assert len(pairs) == one["edges"]
        for pair in pairs[len(shown["pairs"]) :]:
            ends = [(held._sites[end["site"]], end["id"]) for end in pair["questions"]]
            assert ends == [keys[end] for end in pair["ends"]]


def test_a_cluster_is_as_in_the_report(explored: Contents) -> None:
    reported = explorer_data(explored.run)
    entries = {entry["cluster"]["id"]: entry["cluster"] for entry in explored.clusters({})["entries"]}
    assert len(entries) == len(reported["clusters"])
    for cluster in reported["clusters"]:
        shown = {**entries[cluster["id"]], **explored.cluster({"id": cluster["id"]})}
        questions = [reported["questions"][place] for place in cluster["questions"]]
        for question, own in zip(questions, shown["questions"], strict=True):
            assert (own["id"], own["title"]) == (question["id"], question["title"])
            assert explored._sites[own["site"]] == reported["sites"][question["site"]]["name"]
        for pair, own in zip(cluster["pairs"], shown["pairs"], strict=True):
            left, right = (f"{end['site']}.{end['id']}" for end in (shown["questions"][end] for end in own["ends"]))
            evidence = explored.pair({"left": left, "right": right})["evidence"]
            assert {**own, "evidence": evidence} == pair
            assert evidence
        same = ("size", "edges", "bridges", "density", "weakest_link", "mean_probability", "reason", "changes")
        assert {name: shown[name] for name in same} == {name: cluster[name] for name in same}


def test_a_question_is_looked_up_with_its_pairs_and_their_probabilities(explored: Contents) -> None:
    found = explored.question({"id": f"{CS}/{TRIPLE[1][1]}"})
    assert (found["cluster"], found["size"]) == (cluster_id(TRIPLE), 3)
    assert found["question"]["title"] == TITLES[TRIPLE[1]]
    assert [(pair["probability"], pair["questions"][1]["id"]) for pair in found["pairs"]] == [
        (0.96, TRIPLE[0][1]),
        (0.88, TRIPLE[2][1]),
    ]
    alone = explored.question({"id": "34"})
    assert (alone["size"], [(pair["probability"], pair["joined"]) for pair in alone["pairs"]]) == (1, [(0.79, False)])
    for wrong, said in (("5", "several sites have it"), ("999", "no such question"), ("a/b", "no such question")):
        with pytest.raises(RequestError, match=said):
            explored.question({"id": wrong})
    assert explored.question({"id": f"{TRAVEL}/5"})["question"]["id"] == 5


def test_a_question_that_is_gone_from_the_archive_is_said_to_be(tmp_path: Path) -> None:
    run = build_explored_run(str(tmp_path))
    storage.delete(f"{tmp_path}/questions/site={CS}/part-00000.parquet")
    with opened(run) as held:
        assert held.pair({"left": "1.1", "right": "1.2"})["left"] == {"site": 1, "id": 1, "gone": True}
        assert held.odds({"left": "1.1", "right": "1.2"}) == {}


HOST = {"HTTP_HOST": "127.0.0.1:8321"}
JSON = {"CONTENT_TYPE": "application/json", **HOST}


def ask(held: Contents, method: str, target: str, door: Door = Door(), **headers: str) -> Answer:  # noqa: B008
    path, _, query = target.partition("?")
    return answer(held, {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query, **headers}, door)


def said(found: Answer) -> str:
    assert b"\n" not in found.body
    return json.loads(found.body)["error"]


def test_a_verdict_is_written_where_the_next_run_reads_it(tmp_path: Path) -> None:
    with opened(build_explored_run(str(tmp_path))) as held:
        assert len(held.page()["worklist"]) == len(WORK)
        ends = [f"{held._sites.index(site)}.{number}" for site, number in WORK[1]]
        pair = f"left={ends[1]}&right={ends[0]}"  # in either order
        for word in ("same", "different"):  # the last one counts
            assert ask(held, "POST", f"/api/verdict?{pair}&verdict={word}", **JSON).status == 200
        left, right = sorted(WORK[1])
        assert last_verdicts([f"{tmp_path}/runs/verdicts.tsv"])[0] == [Verdict(*left, *right, "different")]
        assert len(held.page()["worklist"]) == len(WORK) - 1
        for wrong in (f"left={ends[0]}&right={ends[0]}&verdict=same", f"{pair}&verdict=maybe", pair):
            assert "two questions and a verdict expected" in said(ask(held, "POST", f"/api/verdict?{wrong}", **JSON))
        judging = ("POST", f"/api/verdict?{pair}&verdict=same")
        assert ask(held, *judging, **HOST).status == 403  # as a form of another page is sent
        assert ask(held, *judging, **JSON, HTTP_SEC_FETCH_SITE="cross-site").status == 403
        assert ask(held, "GET", judging[1], **JSON).status == 404
        assert len(last_verdicts([f"{tmp_path}/runs/verdicts.tsv"])[0]) == 1


def test_the_page_allows_its_own_script_and_server_and_holds_no_cluster(explored: Contents) -> None:
    page = ask(explored, "GET", "/", **HOST)
    parsed, reported = html.fromstring(page.body), html.fromstring(report.render(explored.run.uri))
    assert page.policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in page.policy
    assert "unsafe" not in page.policy
    held, theirs = (json.loads(one.get_element_by_id("run-data").text) for one in (parsed, reported))
    assert held["count"] == 4
    assert "clusters" not in held
    assert len(parsed.xpath("//script[@type='module']")) == len(parsed.xpath("//style")) == 1
    for place in ("//form[@id='filters']//*[@name]/@name", "//form[@id='filters']//option/@value"):
        assert parsed.xpath(place) == reported.xpath(place)
    for ours, other in zip(held["review"], theirs["review"], strict=True):
        assert ours[2] == other[2]
        ids = [[one["questions"][end]["id"] for end in pair[:2]] for one, pair in ((held, ours), (theirs, other))]
        assert ids[0] == ids[1]
    assert b"<script>alert" not in page.body


NAMES = ["evil.example", "localhost.evil.example:8321", "127.0.0.1:x", "localhost:", "", "127.0.0.1.nip.io:8321"]
NAMES += ["localhost:8321@evil.example", "0.0.0.0:8321", "localhost:8321:8321"]


def test_loopback_names_are_answered_and_no_others(explored: Contents) -> None:
    for name in ("localhost:8321", "LOCALHOST:8321", "[::1]", "127.0.0.1:9000"):
        assert ask(explored, "GET", "/api/clusters", HTTP_HOST=name).status == 200
    for name, target in product(NAMES, ("/", "/api/clusters", "/nothing")):
        assert "loopback names only" in said(ask(explored, "GET", target, HTTP_HOST=name))
    assert ask(explored, "GET", "/").status == 403
    for site, status in (("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)):
        assert ask(explored, "GET", "/api/clusters", **HOST, HTTP_SEC_FETCH_SITE=site).status == status
        assert ask(explored, "GET", "/", **HOST, HTTP_SEC_FETCH_SITE=site).status == 200  # a link to the page


PATHS = ["/../manifest.json", "//etc/passwd", "/etc/passwd", "/report.html", "http://127.0.0.1/", "*", "", "/api/"]
PATHS += ["/api/__init__", "/api/run", "/api/_read", "/api/cluster/x", "/api/verdict", "/static/main.js", "clusters"]


def test_no_path_names_a_file_and_nothing_else_is_answered(explored: Contents) -> None:
    for method, target in [*product(("GET",), PATHS), ("POST", "/api/clusters"), ("DELETE", "/"), ("PUT", "/")]:
        assert said(ask(explored, method, target, **JSON)) == "nothing is here", target


def test_beyond_loopback_the_token_is_asked_for_and_the_host_has_any_name(explored: Contents) -> None:
    door, other = Door("secret", is_local=False), {"HTTP_HOST": "dupq.example"}
    basic = base64.b64encode(b"anybody:secret").decode()
    for given in ("Bearer secret", "bearer secret", f"Basic {basic}"):
        assert ask(explored, "GET", "/api/clusters", door, **other, HTTP_AUTHORIZATION=given).status == 200
    wrong = ("", "secret", "Bearer", "Bearer Secret", "Basic secret", "Basic !", "Digest secret", "Bearer s\xe9cret")
    for given, target in product(
        (*wrong, f"Basic {basic[:8]}"), ("/", "/similar?title=a", "/api/clusters", "/nothing")
    ):
        refused = ask(explored, "GET", target, door, **other, HTTP_AUTHORIZATION=given)
        assert (refused.status, said(refused)) == (401, "the token is missing or wrong")
    on_loopback = {"HTTP_AUTHORIZATION": "Bearer secret", "HTTP_HOST": "evil.example"}
    assert ask(explored, "GET", "/", Door("secret"), **on_loopback).status == 403


@pytest.mark.parametrize(
    ("target", "status", "says"),
    [
        ("similar?title=%20&text=", 400, "a title or a text expected"),
        ("similar?title=a&page=2", 400, "title, text, k expected"),
        ("similar?title=a&k=0", 400, "k from 1 to 50"),
        ("similar?title=a&k=51", 400, "k from 1 to 50"),
        ("similar?title=%ff%fe", 400, "utf-8"),
        (f"similar?title={'a' * 1_001}", 413, "at most 1,000 characters of title"),
        (f"similar?title=a&text={'%00' * 20_001}", 413, "20,000 of text"),
        ("api/clusters?sort=id;DROP", 400, "telling, largest, least, most expected"),
        ("api/clusters?size=huge", 400, "two, few, many, most expected"),
        ("api/clusters?from=-1", 400, "a whole number"),
        ("api/clusters?site=' OR 1", 400, "a whole number"),
        ("api/cluster?id=nothing", 400, "no such cluster"),
        ("api/pair?left=99.1&right=1.1", 400, "no such site"),
        ("api/pair?left=1.999999999999999999&right=1.1", 400, "a whole number"),
        ("api/clusters?" + "&".join(["a=1"] * 40), 400, "fields"),
    ],
)
def test_a_wrong_request_is_said_in_one_line(explored: Contents, target: str, status: int, says: str) -> None:
    refused = ask(explored, "GET", f"/{target}", **HOST)
    assert refused.status == status
    assert says in said(refused)
    assert ask(explored, "POST", f"/{target}", **JSON).status == 404


def test_a_cluster_keeps_its_address_when_its_question_leaves_it_or_the_archive(tmp_path: Path) -> None:
    run = build_explored_run(str(tmp_path))
    name = cluster_id(TRIPLE)
    renamed = "a.com/77"
    for folder in ("clusters", "cluster_stats"):
        for file in Path(run, folder).glob("*.parquet"):
            table = pq.read_table(file)
            ids = pc.if_else(pc.equal(table["cluster_id"], name), renamed, table["cluster_id"])
            place = table.schema.get_field_index("cluster_id")
            pq.write_table(table.set_column(place, table.schema.field(place), ids), file)
    storage.delete_folder(f"{tmp_path}/questions/site={CS}")
    with opened(run) as held:
        assert [one["cluster"]["id"] for one in held.clusters({"search": "A.com/77"})["entries"]] == ["a.com/77"]
        assert held.clusters({"search": f"{CS}/31"})["total"] == 1
    assert next(one for one in explorer_data(Run(run))["clusters"] if one["id"] == "a.com/77")["joined"] == 3
