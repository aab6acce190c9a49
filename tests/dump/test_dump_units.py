"""The pieces of a dump's files: how much text each holds, and how far each has come."""

import functools
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dump_files import COMPRESS, noise, write_archive, write_files
from xml_contents import document, link, question

from dupq.dump import units as cutting
from dupq.dump.archives.streams import UnpackLimits
from dupq.dump.files import DumpSite
from dupq.dump.parsing import Contents
from dupq.dump.sites import find_sites
from dupq.dump.tabular.columns import Columns, parse_columns
from dupq.dump.units import Piece, Reading, units
from dupq.dump.xml import segments
from dupq.dump.xml.posts import PostChoice
from dupq.errors import DupqError

LIMITS = UnpackLimits(ratio=200.0, total_bytes=1 << 40)


def all_pieces(site: DumpSite, columns: Columns | None = None) -> list[Piece]:
    reading = Reading(PostChoice(), LIMITS, columns)
    return [piece for unit in units(site) for piece in cutting.pieces(unit, reading)]


def contents(found: list[Piece]) -> list[Contents]:
    return [piece.read() for piece in found]


def lines(count: int) -> str:
    """Text that does not get much smaller."""
    return noise(count // 2).hex()


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1 << 12
    monkeypatch.setattr(cutting, "SIZE", size)
    for name in ("cut", "cut_mapped"):
        monkeypatch.setattr(cutting, name, functools.partial(getattr(segments, name), size=size))


# How far each has come


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("others", [{}, {"Comments.xml": noise(50_000)}])
def test_the_members_of_an_archive_count_for_the_whole_of_it_together(others: dict, tmp_path: Path) -> None:
    posts = document(b"".join(question(number, Body=lines(900)) for number in range(1, 60)))
    links = document(b"".join(link(number, number + 1) for number in range(1, 200)), "postlinks")
    archive = write_archive(tmp_path / "a.com.7z", {"PostLinks.xml": links, **others, "Posts.xml": posts})
    (site,) = find_sites([str(archive)]).sites

    found = all_pieces(site)

    assert len(found) > 10
    assert all(piece.packed >= 0 for piece in found)
    assert sum(piece.packed for piece in found) == archive.stat().st_size
    of_links = [piece.packed for piece in found if piece.name.startswith("0001")]
    share = len(links) / (len(posts) + len(links))
    assert sum(of_links) == pytest.approx(share * archive.stat().st_size, abs=2)


def test_members_without_a_byte_have_equal_shares(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.com.7z", {"PostLinks.xml": b"", "Posts.xml": b""})
    (site,) = find_sites([str(archive)]).sites

    assert [unit.share for unit in units(site)] == [0.5, 0.5]


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_the_pieces_of_a_file_count_for_the_whole_of_it(suffix: str, tmp_path: Path) -> None:
    posts = document(b"".join(question(number, Body=lines(900)) for number in range(1, 60)))
    write_files(tmp_path / "a.com", f"Posts.xml{suffix}", content=posts)
    (site,) = find_sites([str(tmp_path)]).sites

    assert sum(piece.packed for piece in all_pieces(site)) == (tmp_path / "a.com" / f"Posts.xml{suffix}").stat().st_size


# Tables


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_piece_of_a_table_holds_few_long_texts(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "_PIECE_BYTES", 100_000)
    bodies = [random.Random(number).randbytes(5_000).hex() for number in range(100)]
    if form == "parquet":
        pq.write_table(pa.table({"id": range(100), "body": bodies}), tmp_path / "t.parquet")
    else:
        rows = (f"{number},{body}\n" for number, body in enumerate(bodies))
        (tmp_path / "t.csv").write_text("id,body\n" + "".join(rows))
    (site,) = find_sites([str(tmp_path)], "elsewhere", foreign=True).sites

    read = contents(all_pieces(site, parse_columns("id=id,body=body")))

    sizes = [sum(map(len, piece.tables["questions"].column("body_html").to_pylist())) for piece in read]
    assert sum(sizes) == sum(map(len, bodies))
    assert max(sizes) <= 110_000


def test_a_bomb_of_a_table_is_refused(tmp_path: Path) -> None:
    table = pa.table({"Id": range(100), "PostTypeId": [1] * 100, "Body": ["x" * (1 << 20)] * 100})
    (tmp_path / "a.com").mkdir()
    pq.write_table(table, tmp_path / "a.com" / "Posts.parquet", use_dictionary=False, compression="zstd")
    (site,) = find_sites([str(tmp_path)]).sites

    with pytest.raises(DupqError, match=r"Posts\.parquet, column 'Body': stopped: .*unpack it first"):
        all_pieces(site)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_only_dumps_have_fabricated_posts(form: str, tmp_path: Path) -> None:
    ids = [1_000_000_001, 1_000_000_010, 5]
    if form == "parquet":
        pq.write_table(pa.table({"Id": ids, "PostTypeId": [1] * 3, "Title": ["a"] * 3}), tmp_path / "a.com.parquet")
        dump = tmp_path / "a.com.parquet"
    else:
        dump = tmp_path / "a.csv"
        dump.write_text("Id,Title\n" + "".join(f"{number},a\n" for number in ids))
    columns = parse_columns("id=Id,title=Title")
    (elsewhere,) = find_sites([str(dump)], "a.com", foreign=True).sites

    (read,) = contents(all_pieces(elsewhere, columns))

    assert read.tables["questions"].column("question_id").to_pylist() == sorted(ids)
    assert read.counts == {"rows": 3, "questions": 3, "rejects": 0, "duplicate_ids": 0}
    if form == "parquet":
        (site,) = find_sites([str(dump)]).sites
        (read,) = contents(all_pieces(site))
        assert read.tables["questions"].column("question_id").to_pylist() == [5]
        assert read.counts["fabricated"] == 2
