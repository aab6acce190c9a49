import contextlib
import functools
from pathlib import Path
from typing import Any

import py7zr
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dump_files import noise, write_archive, write_files
from site_tables import SiteTables, read_site
from xml_contents import answer, document, link, question, row

from dupq.dump import parsing, reading, xml_files
from dupq.dump.parsing import Account
from dupq.dump.reading import Ingest, file_ranges
from dupq.dump.sites import find_sites
from dupq.errors import DupqError
from dupq.settings.sections import IngestSettings
from dupq.tables import ANSWERS


def read(folder: Path, posts: bytes, links: bytes | None = None, **options: Any) -> SiteTables:
    """What is read from a plain dump with these rows."""
    dump = folder / "dump"
    dump.mkdir(exist_ok=True)
    (dump / "Posts.xml").write_bytes(document(posts))
    if links is not None:
        (dump / "PostLinks.xml").write_bytes(document(links, "postlinks"))
    (site,) = find_sites([str(dump)], site="a.com").sites
    return read_site(site, folder / f"archive-{len(list(folder.iterdir()))}", **options)


def column(tables: SiteTables, name: str) -> list[Any]:
    return tables.questions.column(name).to_pylist()


def test_links_are_sorted_with_the_names_of_their_types(tmp_path: Path) -> None:
    tables = read(tmp_path, question(1), link(9, 2, 3) + link(9, 2, 1) + link(1, 5, 7))
    rows = [(1, 5, "type-7"), (9, 2, "duplicate"), (9, 2, "linked")]
    assert [tuple(values.values())[:3] for values in tables.links.to_pylist()] == rows


def test_answers_are_read_if_asked_for_and_say_which_are_accepted(tmp_path: Path) -> None:
    posts = answer(30, 9, Body="early") + question(9, AcceptedAnswerId=20) + answer(20, 9, Score=4) + answer(20, 9)
    tables = read(tmp_path, posts + question(2, AcceptedAnswerId=1), answers=True)
    assert tables.tables["answers"].schema == ANSWERS
    assert tables.tables["answers"].to_pylist() == [
        {"answer_id": 20, "question_id": 9, "body_html": "", "score": None, "is_accepted": True},
        {"answer_id": 30, "question_id": 9, "body_html": "early", "score": None, "is_accepted": False},
    ]
    assert (tables.counts["answers"], tables.counts["duplicate_ids"], tables.counts["other_posts"]) == (2, 1, 0)


def test_every_row_is_counted_once(tmp_path: Path) -> None:
    posts = question(1) + question(1) + question("x") + b"  <row Id=9 />\r\n" + row(Id=2, PostTypeId=2, Body="answer")
    posts += row(Id=3, PostTypeId=5) + row(Id=4) + question(1000000001) + row(Id=1000000010, PostTypeId=2) + question(8)

    tables = read(tmp_path, posts, link(1, 8) + link(1, "x") + b"<row broken />")

    files = tables.counts.pop("files")
    assert [Path(source).name for source in files] == ["Posts.xml", "PostLinks.xml"]
    assert list(files.values()) == [
        {"rows": 10, "questions": 2, "other_posts": 2, "fabricated": 2, "duplicate_ids": 1, "rejects": 3},
        {"rows": 3, "links": 1, "rejects": 2},
    ]
    of_links = {"link_rows": 3, "links": 1, "link_rejects": 2}
    assert tables.counts == {"rows": 10, "answers": 0, "questions": 2, "other_posts": 2, "rejects": 3} | of_links | {
        "fabricated": 2,
        "duplicate_ids": 1,
    }


@pytest.mark.parametrize(
    ("posts", "instead"),
    [
        (b"", "0 other posts and 0 unusable rows"),
        (row(Id=1, PostTypeId=2) + row(Id=2, PostTypeId=4), "2 other posts and 0 unusable rows"),
        (question(1000000001), "1 other posts and 0 unusable rows"),
        (
            question("x") + question("y") + question(""),
            "0 other posts and 3 unusable rows, most often: Id not a number (2 rows), first at byte {} of {}: {!r}",
        ),
    ],
)
def test_a_dump_without_questions_is_an_error_that_says_what_it_has(posts: bytes, instead: str, tmp_path: Path) -> None:
    with pytest.raises(DupqError) as caught:
        read(tmp_path, posts)
    source = f"{tmp_path}/dump/Posts.xml"
    first, bad = Path(source).read_bytes().find(b"<row"), '<row Id="x" PostTypeId="1" />'
    assert str(caught.value) == f"{source}: no questions in it, only {instead.format(first, source, bad)}"


@pytest.mark.parametrize("packed", [False, True])
def test_neither_segments_nor_shards_change_tables(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts = b"".join(question(number % 85, Title=f"title {number}", Tags="<a>") for number in range(200))
    posts += b"".join(answer(1_000 + number * 7 % 45, number) for number in range(100)) + question("x")
    links = b"".join(link(number * 5 % 17, number % 3) for number in range(50))
    whole = read(tmp_path, posts, links, answers=True)

    monkeypatch.setattr(reading, "SEGMENT_SIZE", 1_000)
    monkeypatch.setattr(reading, "segments", functools.partial(xml_files.segments, size=1_000))
    if packed:
        with py7zr.SevenZipFile(tmp_path / "a.com.7z", "w") as archive:
            archive.writestr(document(posts), "Posts.xml")
            archive.writestr(document(links, "postlinks"), "PostLinks.xml")
        (site,) = find_sites([str(tmp_path / "a.com.7z")]).sites
        in_pieces = read_site(site, tmp_path / "archive", answers=True, shard_rows=30)
    else:
        in_pieces = read(tmp_path, posts, links, answers=True, shard_rows=30)

    assert whole.questions.num_rows == 85
    assert in_pieces.tables == whole.tables
    assert in_pieces.rejects.drop("source") == whole.rejects.drop("source")
    source = "a.com.7z/Posts.xml" if packed else "dump/Posts.xml"
    assert in_pieces.rejects["source"].to_pylist() == [f"{tmp_path}/{source}"]
    assert list(in_pieces.counts.pop("files").values()) == list(whole.counts.pop("files").values())
    assert in_pieces.counts == whole.counts


@pytest.mark.parametrize("rows", [1, 9, 10])
def test_ranges_reach_to_the_last_row_of_a_file(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SEGMENT_SIZE", 10)
    monkeypatch.setattr(reading, "segments", functools.partial(xml_files.segments, size=10))
    tables = read(tmp_path, b"".join(map(question, range(rows))))
    assert column(tables, "question_id") == list(range(rows))


def test_posts_in_several_files_are_one_table(tmp_path: Path) -> None:
    parts = [("1", "1", "old"), ("2", "1", "x")], [("1", "1", "new"), ("3", "2", "an answer")]
    folder = tmp_path / "dump" / "a.com" / "Posts"
    folder.mkdir(parents=True)
    for number, rows in enumerate(parts):
        columns = dict(zip(("Id", "PostTypeId", "Title"), map(list, zip(*rows, strict=True)), strict=True))
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet")
    (site,) = find_sites([str(tmp_path / "dump")], site="a.com").sites

    tables = read_site(site, tmp_path / "archive")

    assert column(tables, "title") == ["new", "x"]
    assert list(tables.counts["files"].values()) == [
        {"rows": 2, "questions": 1, "duplicate_ids": 1, "rejects": 0},
        {"rows": 2, "questions": 1, "other_posts": 1, "rejects": 0},
    ]


# The account of a site


def account_of(rows: int, **counts: int) -> Account:
    account = Account(["Posts.xml", "PostLinks.xml"], 1)
    account.add(0, {"rows": rows, **counts})
    return account


def test_counts_that_do_not_add_up_are_an_error() -> None:
    counts = dict.fromkeys(["questions", "answers", "other_posts", "rejects", "fabricated", "duplicate_ids"], 1)
    assert account_of(6, **counts).totals()["rows"] == 6
    with pytest.raises(DupqError, match=r"Posts\.xml: 7 rows are not the sum of questions 1, answers 1, other_posts 1"):
        account_of(7, **counts).totals()
    account = account_of(6, **counts)
    account.add(1, {"rows": 2, "links": 1})
    with pytest.raises(DupqError, match=r"PostLinks\.xml: 2 rows are not the sum of links 1"):
        account.totals()


@pytest.mark.parametrize(
    ("rejects", "links", "share", "allowed", "fails"),
    [(10, 0, 0.01, 10, False), (10, 1, 0.01, 10, True), (10, 0, 0.5, 0, False), (1, 0, 0, 0, True)],
)
def test_too_many_rejects_fail_a_site(
    rejects: int, links: int, share: float, allowed: int, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "REJECTS_ALLOWED", allowed)
    account = account_of(20, rejects=rejects, questions=20 - rejects)
    account.add(1, {"rows": links, "rejects": links})
    said = pytest.raises(DupqError, match=rf"^{rejects + links} of {20 + links} rows are broken.*see there")
    with said if fails else contextlib.nullcontext():
        account.check_rejects(IngestSettings(maximum_reject_share=share), "there")


POSTS = document(b"".join(question(number, Body=noise(450).hex()) for number in range(1, 60)))
LINKS = document(b"".join(link(number, number + 1) for number in range(1, 200)), "postlinks")


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".zst", ".xz", ".7z"])
def test_the_batches_of_a_file_or_of_an_archives_members_count_for_the_whole_of_it(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1 << 12
    monkeypatch.setattr(reading, "SEGMENT_SIZE", size)
    monkeypatch.setattr(reading, "segments", functools.partial(xml_files.segments, size=size))
    path = tmp_path / ("a.com.7z" if suffix == ".7z" else f"a.com/Posts.xml{suffix}")
    if suffix == ".7z":
        write_archive(path, {"PostLinks.xml": LINKS, "Comments.xml": noise(50_000), "Posts.xml": POSTS})
    else:
        write_files(tmp_path, f"a.com/Posts.xml{suffix}", content=POSTS)
    (site,) = find_sites([str(tmp_path)]).sites

    found = [of for part in file_ranges(site) for of in reading.batches(part, Ingest("", IngestSettings()))]

    assert len(found) > 10
    assert all(batch.packed_bytes >= 0 for batch in found)
    assert sum(batch.packed_bytes for batch in found) == path.stat().st_size
