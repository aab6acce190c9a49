"""The report in a real browser, used by mouse and by keyboard. Needs Chromium and playwright."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from explored_run import ASKED, WORK, build_explored_run
from fabricated_run import CS, PAIR, TITLES, TRAVEL, TRIPLE

from dupq import storage
from dupq.evaluation.verdicts import Verdict, format_verdicts, last_verdicts, parse_verdicts
from dupq.report import page as report
from dupq.runs.queries import estimated
from dupq.tables import QUESTIONS

WIDE, NARROW = {"width": 1400, "height": 1000}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    run = build_explored_run(str(tmp_path_factory.mktemp("explored")))
    return SimpleNamespace(run=run, address=f"file://{report.write(run)}")


@pytest.fixture
def opened(browser: Any, explored: SimpleNamespace) -> Iterator[Any]:
    """Open the page in a fresh browser; at the end, check that it had no errors and no network requests."""
    context = browser.new_context(viewport=WIDE)
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: request.url == explored.address or wrong.append(request.url))
    page.goto(explored.address)
    page.wait_for_selector("html[data-ready]", timeout=20_000)
    yield page
    context.close()
    assert not [said for said in wrong if not said.startswith("blob:")]


@contextmanager
def page_of(browser: Any, run: str, viewport: dict[str, int], scheme: str = "light") -> Iterator[Any]:
    """Open the report of a run that a test has changed."""
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"file://{report.write(run)}")
    page.wait_for_selector("html[data-ready]")
    yield page
    context.close()


def saved(page: Any, button: str, folder: Path) -> Path:
    """Press a button that saves a file."""
    with page.expect_download() as download:
        page.click(button)
    sheet = folder / download.value.suggested_filename
    download.value.save_as(sheet)
    return sheet


def verdicts_in(sheet: Path) -> dict[tuple[tuple[str, int], tuple[str, int]], str]:
    return {((row[0], row[1]), (row[2], row[3])): row[4] for row in parse_verdicts(sheet.read_text(), str(sheet))}


def check_accessible(axe: Any, page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    faults = axe.run(page).response["violations"]
    assert not [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in faults]


def found(page: Any) -> str:
    return page.inner_text("#found")


def titles(page: Any) -> list[str]:
    return page.locator("#cluster-list .title").all_inner_texts()


def test_hostile_titles_are_text_and_lead_nowhere(opened: Any) -> None:
    opened.fill("input[name=search]", "<script>alert")
    assert found(opened) == "1 cluster found"
    assert TITLES[(CS, 1)] in opened.inner_text("#cluster")
    opened.fill("input[name=search]", "javascript:alert")
    assert TITLES[(TRAVEL, 5)] in opened.inner_text("#cluster")
    assert opened.locator("#cluster img, #cluster script, #cluster style, #cluster iframe").count() == 0
    addresses = opened.eval_on_selector_all("a[href]", "links => links.map(link => link.href)")
    assert not [address for address in addresses if not address.startswith(("https://", "file://"))]


def test_search_finds_clusters_and_pairs_to_judge_by_words_and_by_id(opened: Any) -> None:
    assert found(opened) == "4 clusters found"
    opened.fill("input[name=search]", "QUESTION 12")
    assert found(opened) == "1 cluster found"
    opened.fill("input[name=search]", "no such words")
    assert found(opened) == "0 clusters found"
    assert "No cluster matches" in opened.inner_text("#cluster")
    for asked in ("QUESTION 34", f"{CS}/34", "34"):
        opened.fill("input[name=search]", asked)
        assert found(opened) == "0 clusters found, and 1 pair to judge"
    assert "Question 34 about cs · Question 8 about travel" in opened.inner_text("#found-pairs")
    opened.locator("#found-pairs button").focus()
    opened.keyboard.press("Enter")
    assert "Pair 2 of 3." in opened.inner_text("#work-progress")
    opened.keyboard.press("s")
    assert "1 judged: 1 same" in opened.inner_text("#work-progress")
    opened.click("button[type=reset]")
    opened.locator("#found", has_text="4 clusters found").wait_for()
    assert opened.locator("#found-pairs li").count() == 0


FILTERS = [
    ("size", "most", 1),
    ("certainty", "sure", 2),
    ("evidence", "exact", 1),
    ("evidence", "encoder", 2),
    ("evidence", "known", 1),
    ("change", "new", 1),
    ("change", "any", 3),
    ("change", "merged", 1),
    ("change", "grown", 0),
]


def test_filters_leave_the_clusters_that_are_asked_for_and_orders_sort(opened: Any) -> None:
    for name, value, count in FILTERS:
        opened.select_option(f"select[name={name}]", value)
        assert found(opened) == f"{count} cluster{'' if count == 1 else 's'} found", (name, value)
        opened.select_option(f"select[name={name}]", "")
    opened.check("input[name=meaning]")
    assert found(opened) == "0 clusters found"  # titles share half of their words
    opened.click("button[type=reset]")
    opened.select_option("select[name=site]", label=TRAVEL)
    assert found(opened) == "2 clusters found"
    opened.click("button[type=reset]")
    opened.select_option("select[name=sort]", "largest")
    assert opened.locator("#cluster-list .size").all_inner_texts() == ["25", "3", "2", "2"]


def test_an_opened_cluster_shows_graph_questions_and_what_speaks_for_a_pair(opened: Any) -> None:
    opened.select_option("select[name=change]", "new")
    shown = opened.locator("#cluster")
    assert shown.locator("svg.graph .dot").count() == 2
    assert shown.locator("svg.graph .edge").count() == 1
    ring, other = (
        shown.locator(f".dot.chosen{kind} circle").evaluate("dot => getComputedStyle(dot).stroke")
        for kind in (".canonical", ":not(.canonical)")
    )
    assert ring != other
    assert opened.evaluate("getComputedStyle(document.querySelector('.badge')).color") == ring  # "canonical", in green
    legend = shown.locator(".legend").inner_text()
    assert legend.splitlines() == ["Encoder", "Pair compared below", "Question to keep"]
    assert shown.locator(".side").count() == 2
    assert "Canonical because it has the higher score" in shown.inner_text()
    assert "titles share" in shown.locator(".evidence").inner_text()
    assert "is a duplicate with probability 0.910; from 0.800 on pairs may join" in shown.inner_text()
    assert shown.locator(f"ol a[href='https://{PAIR[0][0]}/questions/{PAIR[0][1]}']").count() == 1


def test_a_cluster_stays_as_it_is_while_it_is_found(opened: Any) -> None:
    opened.fill("input[name=search]", "مسألة")
    opened.locator("#cluster button.pair").nth(2).click()
    opened.fill("input[name=search]", "ما هي مسألة")
    assert opened.locator("#cluster button.pair").nth(2).get_attribute("aria-pressed") == "true"
    opened.click("button[type=reset]")
    opened.locator("#found", has_text="4 clusters found").wait_for()
    assert opened.locator("#cluster button.pair").nth(2).get_attribute("aria-pressed") == "true"
    current = opened.locator("#cluster-list [aria-current]")
    assert current.locator(".title").inner_text() == opened.inner_text("#cluster h3")
    opened.fill("input[name=search]", "question 33")
    assert current.locator(".title").inner_text() == opened.inner_text("#cluster h3")


def test_what_the_browser_keeps_is_there_again_beside_the_verdicts_of_the_run(opened: Any) -> None:
    kept = {"dupq-worklist-more-fabricated": [[0, 3]], "dupq-worklist-fabricated": ["", "", "", "same"]}
    kept["dupq-verdicts-fabricated"] = ["same", "", "", ""]
    for key, value in kept.items():  # before the page's scripts: what is stored just before a reload may be late
        opened.add_init_script(f"localStorage.setItem({key!r}, {json.dumps(json.dumps(value))})")
    opened.reload()
    opened.wait_for_selector("html[data-ready]")
    assert "of 4. 1 judged: 1 same" in opened.inner_text("#work-progress")
    assert "2 judged: 1 same, 0 different, 1 unsure" in opened.inner_text("#judge-progress")


def test_a_cluster_has_an_address(opened: Any) -> None:
    opened.locator("#cluster-list button").nth(1).click()
    title, address = opened.inner_text("#cluster h3"), opened.url
    opened.goto("about:blank")
    opened.goto(address)
    opened.wait_for_selector("html[data-ready]")
    assert opened.inner_text("#cluster h3") == title


def test_shared_words_are_marked_and_shared_shingles_more(opened: Any) -> None:
    opened.select_option("select[name=size]", "most")
    opened.locator("#cluster button.pair").nth(10).click()  # "Question 11 about cs" and "Question 12 about cs"
    assert opened.locator("#cluster .side .heading mark.only").all_inner_texts() == ["11", "12"]
    assert opened.locator("#work-pair .heading mark.only").count()


def test_the_list_is_walked_and_opened_by_keys(opened: Any) -> None:
    opened.locator("#cluster-list button").first.focus()
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "cluster"
    assert opened.inner_text("#cluster h3") == titles(opened)[1]
    opened.keyboard.press("Escape")
    assert opened.evaluate("document.activeElement.getAttribute('aria-current')") == "true"


def test_the_slider_says_what_another_threshold_gives(opened: Any) -> None:
    slider = opened.locator("#threshold")
    assert opened.inner_text("#threshold-value") == "0.80"
    assert [opened.inner_text(f"#there-{name}") for name in ("pairs", "clusters", "questions")] == ["3", "4", "32"]
    assert opened.inner_text("#there-expected") == "91.7 %"
    slider.focus()
    opened.keyboard.press("End")
    assert [opened.inner_text(f"#there-{name}") for name in ("pairs", "expected")] == ["0", "–"]
    slider.fill("70")
    opened.keyboard.press("ArrowLeft")
    opened.keyboard.press("ArrowLeft")
    assert opened.inner_text("#there-pairs") == "4"
    assert opened.inner_text("#there-questions") == "34"
    assert "--set clusters.threshold=0.78" in opened.inner_text("#another")
    assert slider.get_attribute("aria-valuetext").startswith("0.78: 4 pairs, 5 clusters")


def test_where_nothing_is_sure_enough_the_slider_begins_at_the_likeliest_pair(browser: Any, tmp_path: Path) -> None:
    run = build_explored_run(str(tmp_path))
    place = storage.join(run, "metrics.json")
    nothing = {"threshold": 1.0, "encoder_pairs_above_threshold": 0}
    storage.write_json(place, {**storage.read_json(place), **nothing})
    with page_of(browser, run, WIDE) as page:
        assert page.inner_text("#there-pairs") == "1"
        assert "The run itself: no pair is sure enough" in page.inner_text("#another")
        page.select_option("select[name=evidence]", "near_duplicate")
        assert "least sure pair" not in page.inner_text("#cluster-list") + page.inner_text("#cluster")


ROW = {"threshold": 0.8, "links_found": 0.2, "pairs": 10, "expected_precision": 0.8, "lower_bound_precision": None}
LINKS = {"test_links": 20, "searched_links": 0, "among_nearest": {}, "in_one_cluster": 0.5, "in_pairs": 0.75} | {
    "thresholds": [{**ROW, "precision": 0.8}],
    "by_threshold": [
        {"threshold": step / 100, "links_found": (100 - step) / 100, "lower_bound_precision": step / 200 or None}
        for step in range(10, 100)
    ],
}


def test_known_duplicates_give_the_slider_precision_by_recall(browser: Any, axe: Any, tmp_path: Path) -> None:
    run = build_explored_run(str(tmp_path))
    place = storage.join(run, "metrics.json")
    storage.write_json(place, {**storage.read_json(place), "links": LINKS})
    with page_of(browser, run, NARROW) as page:
        plot = page.locator("#threshold-plots svg").nth(2)
        assert plot.get_attribute("aria-label") == "Expected precision, and how many known duplicates are found"
        assert page.inner_text("#there-found") == "20.0 %"  # at the run's own 0.80
        before = float(plot.locator("circle").get_attribute("cx"))
        page.locator("#threshold").fill("30")
        assert page.inner_text("#there-found") == "60.0 %"
        assert float(plot.locator("circle").get_attribute("cx")) > before  # more is found
        check_accessible(axe, page)


def test_the_worklist_is_judged_first_and_saved_in_a_file_that_names_no_run(opened: Any, tmp_path: Path) -> None:
    assert opened.locator("section").first.get_attribute("id") == "work"
    assert "titles share '<b>1</b>'" in opened.inner_text("#work-pair")
    opened.locator("#work-panel").focus()
    for key in "dzsd":  # the first is undone
        opened.keyboard.press(key)
    assert "2 judged: 1 same, 1 different, 0 unsure" in opened.inner_text("#work-progress")
    assert "1 judged" in opened.inner_text("#judge-progress")  # the sample keeps its own
    sheet, pairs = saved(opened, "#work-export", tmp_path), [tuple(sorted(pair)) for pair in WORK]
    assert verdicts_in(sheet) == dict(zip(pairs, ["same", "different"], strict=False))
    assert "run_id" not in sheet.read_text()
    assert "1 of 2 same; dupq expected 0.8." in opened.inner_text("#work-progress")
    assert opened.inner_text("#work-saved").startswith("2 verdicts saved as worklist-fabricated.tsv")
    assert opened.inner_text("#work-command").endswith(" --verdicts ~/Downloads/worklist-fabricated.tsv")


def test_what_was_decided_is_listed_and_taken_back_by_keys(opened: Any) -> None:
    opened.click("#work-export")
    assert opened.inner_text("#work-saved") == "No verdict is given yet."
    assert not opened.locator("#work-decided, #work-command").locator("visible=true").count()
    opened.locator("#work-panel").focus()
    opened.keyboard.press("s")
    opened.keyboard.press("d")
    opened.locator("#work-decided summary").focus()
    opened.keyboard.press("Enter")
    opened.locator("#work-decisions b").nth(1).wait_for()  # the list is drawn when a `details` tells that it is open
    assert opened.locator("#work-decisions b").all_inner_texts() == ["Same", "Different"]
    opened.keyboard.press("Tab")  # to Show
    opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    assert opened.locator("#work-decisions b").all_inner_texts() == ["Different"]
    assert opened.evaluate("document.activeElement.tagName") == "SUMMARY"
    opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    assert "Pair 2 of 3. 1 judged: 0 same, 1 different" in opened.inner_text("#work-progress")
    opened.keyboard.press("z")  # what was taken back last is given again
    assert "2 judged: 1 same, 1 different" in opened.inner_text("#work-progress")


def test_what_earlier_runs_knew_is_taken_back_in_the_file_that_is_saved(browser: Any, tmp_path: Path) -> None:
    run = build_explored_run(str(tmp_path))
    pairs = [tuple(sorted(pair)) for pair in (PAIR, TRIPLE[:2])]
    verdicts = [Verdict(*left, *right, word) for (left, right), word in zip(pairs, ("same", "different"), strict=True)]
    elsewhere = Verdict("another.site", 1, "another.site", 2, "same")
    storage.write_bytes(storage.join(run, "verdicts.tsv"), format_verdicts([*verdicts, elsewhere]).encode())
    with page_of(browser, run, WIDE) as page:
        assert "Pair 1 of 3. 0 judged" in page.inner_text("#work-progress")
        page.click("#work-decided summary")
        page.locator("#work-decisions li", has_text="Same").get_by_text("Show").click()
        assert "Judged before. 0 judged" in page.inner_text("#work-progress")
        page.locator("#work-decisions li", has_text="Same").get_by_text("Take back").click()
        sheet = saved(page, "#work-export", tmp_path)
        assert page.inner_text("#work-saved").startswith("1 verdict saved")
    found, _ = last_verdicts([storage.join(run, "verdicts.tsv"), str(sheet)])
    assert sorted(found) == sorted([verdicts[1], elsewhere])


def test_buttons_stay_in_view_beside_long_texts(browser: Any, tmp_path: Path) -> None:
    run = build_explored_run(str(tmp_path))
    for file in storage.list_files(f"{tmp_path}/questions", ".parquet"):
        table = storage.read_table(file.uri, QUESTIONS)
        long = pa.array(["<p>word word</p>" * 300] * len(table))
        table = table.set_column(QUESTIONS.names.index("body_html"), QUESTIONS.field("body_html"), long)
        storage.write_table(file.uri, table, QUESTIONS)
    with page_of(browser, run, NARROW) as page:
        for _ in range(2):
            page.locator("#work-panel").evaluate("box => box.scrollIntoView()")
            box = page.locator("#work-panel [data-verdict=same]").bounding_box()
            assert 0 < box["y"] < NARROW["height"] - box["height"]
            text = page.locator("#work-pair .excerpt").first
            before = text.bounding_box()["height"]
            page.click("#work-whole")
            assert abs(text.bounding_box()["height"] - before) > 50


def test_verdicts_by_keys_are_exported_in_the_file_that_the_next_run_reads(
    opened: Any, explored: SimpleNamespace, tmp_path: Path
) -> None:
    opened.locator("#judge-panel").focus()
    for key in "sdszs":  # the third is undone, and given again
        opened.keyboard.press(key)
    assert "4 judged: 2 same, 1 different, 1 unsure" in opened.inner_text("#judge-progress")
    sheet = saved(opened, "#judge-export", tmp_path)
    assert verdicts_in(sheet) == dict(zip(ASKED[::-1], ["same", "different", "same", "unsure"], strict=True))
    header, first = (line.split("\t") for line in sheet.read_text().splitlines()[:2])
    assert header == Path(explored.run, "review.tsv").read_text().splitlines()[0].split("\t") + header[6:]
    assert first[header.index("run_id")] == "fabricated"
    told = estimated(str(sheet), str(Path(explored.run).parent))
    assert (told["judged"], told["unsure"]) == (3, 1)
    assert told["precision"] is not None


def test_keys_count_in_the_box_alone_and_a_held_one_judges_one_pair(opened: Any) -> None:
    opened.locator("input[name=search]").press("s")
    assert "1 judged" in opened.inner_text("#judge-progress")  # the one in review.tsv
    opened.click("nav a[href='#judge']")
    opened.wait_for_function("document.activeElement.id === 'judge-panel'")
    for _ in range(3):
        opened.keyboard.down("s")  # again and again without "up": the key repeats
    opened.keyboard.up("s")
    assert "2 judged: 1 same, 0 different, 1 unsure" in opened.inner_text("#judge-progress")


@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", NARROW)], ids=["light-wide", "dark-narrow"])
def test_it_is_accessible_and_fits_the_screen(
    browser: Any, explored: SimpleNamespace, axe: Any, scheme: str, size: dict
) -> None:
    with page_of(browser, explored.run, size, scheme) as page:
        page.locator("#work-panel").press("s")
        page.click("#work-export")
        page.click("#work-decided summary")
        page.fill("input[name=search]", "question")
        assert page.locator("#work-decisions li, #found-pairs li").count() > 2
        check_accessible(axe, page)
