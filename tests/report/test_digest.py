"""The digest, as readers of Markdown show it: the groups that changed, and titles that do nothing."""

from pathlib import Path

import markdown
import pyarrow as pa
from explored_run import build_explored_run
from fabricated_run import BAD_SITE, CLUSTERS, CS, LARGE, PAIR, TITLES, TRAVEL, TRIPLE, build_run
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from selectolax.lexbor import LexborHTMLParser, LexborNode

from dupq import storage, tables
from dupq.export import DIGEST, export
from dupq.report.digest import DUPLICATES, escaped

COMMONMARK = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = "# @all ~~x~~ <b>*_`[a](javascript:b)` | &lt; \\* https://evil.example www.x.io $x$ 1. - + :tada: me@x.io #1"


def shown(page: str) -> LexborHTMLParser:
    return LexborHTMLParser(COMMONMARK.render(page))


@given(st.text(max_size=40))
@example(HOSTILE)
@example("\u202egnp.exe\n\n# heading\n    code\n```")
def test_a_text_says_the_same_in_markdown_and_does_nothing(text: str) -> None:
    for render in (COMMONMARK.render, markdown.markdown):
        (paragraph,) = LexborHTMLParser(render(f"x{escaped(text)}x")).body.iter()  # type: ignore[union-attr]
        assert paragraph.tag == "p"
        assert [*paragraph.iter()] == []
        plain = "".join(letter if letter.isprintable() else " " for letter in text)
        assert paragraph.text().replace("\u2060", "") == f"x{' '.join(plain.split())}x"
    assert "@" not in escaped(text).replace("&#64;\u2060", "")


def told(run: str, tmp_path: Path) -> list[tuple[LexborNode, str, list[list[LexborNode]]]]:
    """The heading of each group, what is said about it, and the cells of its table."""
    export(run, "digest", str(tmp_path / "out"))
    page = shown((tmp_path / "out" / DIGEST).read_text())
    rows = [[row.css("td") for row in table.css("tbody tr")] for table in page.css("table")]
    lines = [heading.next.next.text() for heading in page.css("h2")]  # type: ignore[union-attr]
    return list(zip(page.css("h2"), lines, rows, strict=True))


def with_figures(folder: Path) -> None:
    """Give the triple's questions answers, views and tags, and one of them an address of its own."""
    for file in storage.list_files(f"{folder}/questions", ".parquet"):
        rows = storage.read_table(file.uri, tables.QUESTIONS).to_pylist()
        for row in rows:
            number, key = row["question_id"], (CS if CS in file.uri else TRAVEL, row["question_id"])
            if key in TRIPLE:
                row |= {"answer_count": number, "view_count": 1_000 * number, "tags": ["a", f"t|{number}"]}
                row["url"] = "https://x.example/(a)[b]|c" if key == TRIPLE[0] else None
        storage.write_table(file.uri, pa.Table.from_pylist(rows, tables.QUESTIONS), tables.QUESTIONS)


def test_the_groups_that_changed_with_what_each_duplicate_adds(tmp_path: Path) -> None:
    run = build_explored_run(str(tmp_path))
    with_figures(tmp_path)
    found = told(run, tmp_path)
    page = (tmp_path / "out" / DIGEST).read_text()
    assert "32 of 53 questions are in 4 groups of duplicates. Since the run before: " in page
    assert "1 merged, 1 new, 1 shrunk, 1 split." in page
    titles = [heading.text().partition(". ")[2] for heading, *_ in found]
    assert titles == [TITLES[TRIPLE[2]], f"Question 2 about {BAD_SITE.partition('.')[0]}", TITLES[PAIR[1]]]
    heading, about, rows = found[0]
    assert "merged and split, 2 questions joined; 3 questions; least sure pair 0.88." in about
    assert "The one to keep has 5 answers, 5,000 views, tags a, t|5." in about
    assert heading.css_first("a").attributes["href"] == f"https://{TRAVEL}/questions/5"  # type: ignore[union-attr]
    assert [[cell.text() for cell in row[1:]] for row in rows] == [["32", "32,000", "t|32"], ["31", "31,000", "t|31"]]
    links = [row[0].css_first("a").attributes["href"] for row in rows]  # type: ignore[union-attr]
    assert links == [f"https://{CS}/questions/32", "https://x.example/%28a%29%5Bb%5D%7Cc"]


def test_without_an_earlier_run_the_largest_groups_and_the_first_of_their_duplicates(tmp_path: Path) -> None:
    found = told(build_run(str(tmp_path)), tmp_path)
    assert len(found) == len(CLUSTERS)
    assert [len(rows) for *_, rows in found] == [DUPLICATES, 2, 1, 1]
    page = (tmp_path / "out" / DIGEST).read_text()
    assert f"And {len(LARGE) - 1 - DUPLICATES} more duplicates." in page
    assert "Since" not in page
    assert {len(row) for *_, rows in found for row in rows} == {1}  # the archive has no answers, views or tags
