"""The report: what it shows, and that users' text stays text."""

import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from explored_run import write_worklist
from fabricated_run import BAD_SITE, CS, LONG_TITLE, PAIR, THRESHOLD, TITLES, TRAVEL, build_run
from lxml import html

from dupq import storage, tables
from dupq.report import charts, page
from dupq.report import summary as formats
from dupq.report.charts import SOURCES, Counts
from dupq.report.summary import summary
from dupq.runs.reader import link, open_run


def built(folder: Path) -> str:
    """A run whose worklist has all questions with titles."""
    run, keys = build_run(str(folder)), sorted(TITLES)
    write_worklist(run, list(pairwise([*keys, (CS, 999)])))
    return run


@pytest.fixture
def run(tmp_path: Path) -> str:
    """One to be changed."""
    return built(tmp_path)


def change(run: str, **metrics: object) -> None:
    place = storage.join(run, "metrics.json")
    storage.write_json(place, {**storage.read_json(place), **metrics})


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page.render(built(tmp_path_factory.mktemp("report")))


@pytest.fixture(scope="module")
def parsed(rendered: str) -> html.HtmlElement:
    return html.fromstring(rendered)


def text_of(element: html.HtmlElement) -> str:
    return " ".join(element.text_content().split())


def test_titles_stay_text_and_templates_in_them_are_not_run(rendered: str, parsed: html.HtmlElement) -> None:
    assert "{{ 7 * 7 }}" in rendered
    shown = {title.text_content() for title in parsed.find_class("title")}
    hostile = {" ".join(title.split()) for title in TITLES.values() if 0 < len(title) < 200}
    assert hostile <= shown
    assert not parsed.xpath("//img | //iframe | //object | //comment() | //a[starts-with(@href, 'javascript')]")
    assert not [name for element in parsed.iter() for name in element.attrib if name.startswith("on")]
    data = {"type": "application/json", "id": "run-data"}
    assert [script.attrib for script in parsed.iter("script")] == [data, {"type": "module"}]
    assert len(parsed.xpath("//style")) == 1
    said = text_of(parsed.find_class("worklist")[0])
    assert LONG_TITLE[:300].strip() in said
    assert LONG_TITLE[:1000].strip() not in said
    assert "Untitled" in said


def test_a_run_with_settings_of_another_version_has_its_report(run: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    config = storage.read_json(str(other / "config.json"))
    config.setdefault("text", {})["weather"] = "fine"
    storage.write_json(str(other / "config.json"), {**config, "weather": {"wind": 3}})
    assert page.render(str(other)).count("<section") == page.render(run).count("<section") > 3


def test_the_page_loads_nothing(rendered: str, parsed: html.HtmlElement) -> None:
    assert not parsed.xpath("//@src | //link | //@srcset | //@*[name()='xlink:href']")
    assert not re.search(r"@import|url\(", rendered)
    beside = {"config.json", "manifest.json", "metrics.json"}
    for address in parsed.xpath("//@href"):
        inside = address.startswith("#") or address in beside
        assert inside or re.fullmatch(rf"https://({CS}|{TRAVEL})/questions/\d+", address)


def test_links_lead_to_sections_and_to_questions_of_sites_with_host_names(parsed: html.HtmlElement) -> None:
    linked = [address.removeprefix("#") for address in parsed.xpath("//nav//@href")]
    assert len(linked) > 3
    assert set(linked) <= set(parsed.xpath("//@id"))
    links = parsed.xpath(f"//ol[@class='worklist']//a[@href='https://{TRAVEL}/questions/7']")
    assert {link.text_content() for link in links} == {TITLES[PAIR[1]]}
    odd = [title for title in parsed.find_class("title") if title.text_content() == "A copy"]
    assert odd
    assert not [title for title in odd if title.xpath(".//a")]
    for site in (BAD_SITE, "localhost", "a.b/c", "a.b@c.d", "a..b", "", "a.b\n", "user:x.y"):
        assert link((site, 1)) is None


def test_counts_are_shown(parsed: html.HtmlElement) -> None:
    steps = parsed.get_element_by_id("steps").xpath(".//table[@class='bars']//text()[normalize-space()]")
    assert steps[1:5] == ["Questions", "53 (100.0 %)", "Exact copies of another", "1 (1.9 %)"]
    header = text_of(parsed.find("body/header"))
    assert "53 questions of 3 sites Found 4 groups of duplicates: 32 questions, at most 25 in a group, so 28 " in header
    assert "Trust probabilities are estimates from 2 other sites" in header


def test_sources_count_all_pairs_joining_ones_and_known_links(run: str) -> None:
    counts = Counts(open_run(run))
    found = [tuple(column.sum(axis=1).tolist()) for column in (counts.pairs, counts.joining, counts.known)]
    assert dict(zip(SOURCES, zip(*found, strict=True), strict=True)) == {
        "exact": (1, 1, 0),
        "near_duplicate": (24, 24, 0),
        "encoder": (5, 3, 1),
        "known_link": (1, 1, 1),
        "verdict": (0, 0, 0),
    }


def test_the_threshold_is_named_among_the_probabilities_of_the_encoders_pairs(parsed: html.HtmlElement) -> None:
    (chart,) = parsed.xpath("//table[starts-with(caption, 'Probability of the encoder')]")
    shown = {row.findtext("th"): row.findall("td")[-1].text for row in chart.iter("tr")}
    assert f"threshold {THRESHOLD:.3f}" in shown["0.8 to 0.9"]
    assert sum(int(said.split(" ")[0]) for said in shown.values()) == 5  # and no near duplicates
    assert next(iter(shown)) == "0.9 to 1.0"


def test_a_summary_says_what_was_found_and_what_decided(run: str) -> None:
    shown = summary(run)
    assert "3 pairs of the same meaning; perhaps 3 of them right (an estimate; threshold 0.800)" in shown
    assert "2 other sites (60%) and 25 sets of known duplicates of this archive (40%)" in shown
    calibration = storage.read_json(storage.join(run, "metrics.json"))["calibration"]
    change(run, calibration={**calibration, "development_sets": 0})
    assert "2 other sites alone: nobody has marked duplicates here" in summary(run)


@pytest.mark.parametrize(
    ("first", "expected", "factor", "said"),
    [
        (50, 20.0, 1.5, "13 to 30 of the first 50"),
        (50, 40.0, 1.5, "27 to 50 of the first 50"),  # not more than there are
        (7, 0.3, 2.0, "0 to 1 of the first 7"),
        (3, 0.1, 1.5, "0 of the first 3"),
    ],
)
def test_a_summary_says_how_many_of_the_likely_pairs_may_be_right(
    run: str, first: int, expected: float, factor: float, said: str
) -> None:
    work = {"pairs": 1_200, "first": first, "expected_right": expected, "factor": factor}
    change(run, worklist=work)
    assert "1,200 more pairs to look at, likeliest first: " in summary(run)
    assert f"perhaps {said} are duplicates (an estimate" in summary(run)
    change(run, worklist={**work, "pairs": 0})
    assert "to look at" not in summary(run)


def test_a_summary_says_how_many_known_links_are_in_one_cluster(run: str) -> None:
    assert "users had marked" not in summary(run)
    links = {"test_links": 1_052, "in_one_cluster": 0.038, "in_pairs": 0.5, "searched_links": 0, "among_nearest": {}}
    said = "users had marked 1,052 duplicates that dupq did not see: 40 are in its groups\n"
    near = {"among_nearest": {"1": 0.2, "10": 0.4}, "searched_links": 1_000}
    more = "          of the 1,000 that are no copies, 400 are among the ten questions that it finds most alike\n"
    for given, then in (({}, ""), (near, more)):
        change(run, links=links | given)
        assert f"{said}{then}" in summary(run)
    change(run, links=links | {"in_one_cluster": None})
    assert "1,052 duplicates that dupq did not see: all are joined by their links\n" in summary(run)


def test_what_verdicts_tell_is_on_the_page_and_in_the_summary(run: str) -> None:
    assert "By verdicts" not in page.render(run)
    told = {"run_id": "earlier", "judged": 12, "unsure": 1, "on_other_pairs": 0, "duplicates": None}
    found = {"value": 0.75, "lower": 0.5, "upper": 0.905}
    change(run, verdicts={**told, "precision": found, "recall": None})
    quality = text_of(html.fromstring(page.render(run)).get_element_by_id("quality"))
    assert "12 verdicts on the sample of run earlier, not counting 1 unsure, measure that" in quality
    assert "Precision of the pairs that it joined 75.0 % 50.0 % to 90.5 %" in quality
    assert "joined – not yet: judge more" in quality
    assert "12 verdicts on the sample of run earlier: precision 75% (50% to 90%)" in summary(run)
    change(run, verdicts={**told, "precision": None, "recall": None})
    assert "none on a joined pair, so no precision yet" in summary(run)


def test_limits_that_were_reached_stand_out(parsed: html.HtmlElement) -> None:
    (alert,) = parsed.find_class("alert")
    assert [text_of(item) for item in alert.iter("li")] == ["Near duplicates: 3 texts over a limit"]
    assert [text_of(item) for item in parsed.find_class("capped")] == ["3 texts over a limit"]


def test_a_run_without_duplicates_has_a_page(run: str) -> None:
    for name, schema in [("pairs", tables.PAIRS), ("cluster_stats", tables.CLUSTER_STATS)]:
        for file in storage.list_files(storage.join(run, name)):
            storage.write_table(file.uri, schema.empty_table(), schema)
    assert "The run found no clusters." in page.render(run)


def test_the_page_does_not_depend_on_shards_or_row_order(run: str) -> None:
    before = page.render(run)
    schemas = {"pairs": tables.PAIRS, "clusters": tables.CLUSTERS, "cluster_stats": tables.CLUSTER_STATS}
    for name, schema in schemas.items():
        first, second = storage.list_files(storage.join(run, name), ".parquet")
        table = pa.concat_tables([storage.read_table(first.uri), storage.read_table(second.uri)])
        storage.write_table(first.uri, table.slice(1).take(np.arange(len(table) - 1)[::-1]), schema)
        storage.write_table(second.uri, table.slice(0, 1), schema)
    assert page.render(run) == before


def test_chart_labels_are_escaped() -> None:
    svg = page.template("macros.html.jinja").module.bars("A & B", "<desc>", [charts.Bar("<script>", 1, "1")])
    assert "<script>" not in svg
    assert "A &amp; B. &lt;desc&gt;" in svg
    assert "&lt;script&gt;" in svg


def test_known_duplicates_are_told_apart_by_where_they_were_lost() -> None:
    shown = charts.lost({"test_links": 52, "in_one_cluster": 2 / 52, "listed_apart": 25 / 52})
    assert [bar.text.partition(" (")[0] for bar in shown] == ["2 links", "25 links", "25 links"]
    assert not charts.lost({"test_links": 0})


def test_drift_is_told_where_there_was_an_earlier_run(run: str, parsed: html.HtmlElement) -> None:
    assert "Since the last run" not in [heading.text for heading in parsed.iter("h3")]
    then = {"clusters": {"now": 4, "then": 1234}, "recall": {"now": 0.5, "then": None}}
    change(run, drift={"questions_of_clusters_changed": 0.25, **then})
    quality = text_of(html.fromstring(page.render(run)).get_element_by_id("quality"))
    assert "25.0 % of the questions of clusters, of either run, changed their cluster" in quality
    assert "Clusters 4 1,234 Recall, of known duplicates 50.0 % –" in quality


def test_values_read_well() -> None:
    assert [*map(formats.duration, (4.24, 59.96, 7_500))] == ["4.2 s", "1 min 0 s", "2 h 5 min"]
    assert [*map(formats.memory, (512, 1_500))] == ["512 MB", "1.5 GB"]
    assert page.template("page.html.jinja").environment.filters["score"](None) == "–"


def test_bars_of_few_pairs_are_merged() -> None:
    low, high = [0.0, 0.5, 0.6, 0.7], [0.5, 0.6, 0.7, 1.0]
    bins = {"lower": low, "upper": high, "pairs": [500, 1, 9, 2], "mean_probability": [0.1, 0.5, 0.65, 0.8]}
    shown = charts.reliability({"calibration": {**bins, "share_right": [0.0, 1.0, 0.0, 1.0]}})
    said = ["0.00 to 0.50", "of 500 pairs", "0.50 to 1.00", "of 12 pairs"]
    texts = " ".join(f"{bar.label} {bar.text}" for bar in shown)
    assert re.findall(r"[\d.]+ to [\d.]+|of \d+ pairs?", texts) == said
