"""The ingest job on a generated archive of several parts and shards: killed, packed otherwise, on S3, with answers."""

import functools
from collections.abc import Iterator
from pathlib import Path

import py7zr
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from dump_files import upload, write_files
from ingest_jobs import SITE, without_sources
from inline import without_ray
from lxml import etree

from benchmarks import big_archive
from dupq.dump import reading, xml_files
from dupq.pipelines.ingest import IngestJob, ingest

STORED = [{"id": py7zr.FILTER_COPY}]  # packing takes long
SHARD_ROWS = "ingest.shard_rows=190"


@pytest.fixture(scope="module", autouse=True)
def _segments_are_small() -> Iterator[None]:
    """A sixteenth of what they are, but in Ray's workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "SEGMENT_SIZE", 1 << 20)
        patch.setattr(reading, "segments", functools.partial(xml_files.segments, size=1 << 20))
        yield


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a site of six segments, in two ranges, with two rows that are rejected after three and seven ninths."""
    folder, size = tmp_path_factory.mktemp("dump"), 5_400_000
    big_archive.write_archive(folder, size=size, seed=1, site=SITE)
    posts = folder / SITE / "Posts.xml"
    content = posts.read_bytes()
    for ninths in (3, 7):
        row = content.index(b"<row ", size * ninths // 9)
        content = content[:row] + b'<row Id="1" PostTypeId="1" Body="& no XML" />\r\n  ' + content[row:]
    posts.write_bytes(content)
    return posts.parent


@pytest.fixture(scope="module")
@without_ray()
def archive(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("undisturbed")
    ingest(IngestJob((str(dump),), str(output), answers=True, assignments=(SHARD_ROWS,)))
    return output


def test_the_tables_hold_what_a_plain_parser_finds(dump: Path, archive: Path) -> None:
    accepted, questions, answers = set(), [], []
    for _, row in etree.iterparse(dump / "Posts.xml", tag="row", recover=True):
        attributes = dict(row.attrib)
        row.clear()
        if attributes.get("PostTypeId") == "1" and "no XML" not in attributes["Body"]:
            questions.append((int(attributes["Id"]), attributes["Title"], attributes["Body"]))
            accepted.add(attributes.get("AcceptedAnswerId"))
        elif attributes.get("PostTypeId") == "2":
            answers.append((int(attributes["Id"]), int(attributes["ParentId"]), attributes["Body"]))
    found = ds.dataset(archive / "questions", partitioning="hive").to_table()
    assert found["site"].unique().to_pylist() == [SITE]
    assert (
        list(zip(*(found[name].to_pylist() for name in ("question_id", "title", "body_html")), strict=True))
        == questions
    )
    found = ds.dataset(archive / "answers").to_table()
    columns = ("answer_id", "question_id", "body_html")
    assert list(zip(*(found[name].to_pylist() for name in columns), strict=True)) == answers
    is_accepted = [str(answer[0]) in accepted for answer in answers]
    assert found["is_accepted"].to_pylist() == is_accepted
    assert any(is_accepted)


def test_the_same_bytes_of_packed_files(dump: Path, archive: Path, tmp_path: Path) -> None:
    for name in ("Posts.xml", "PostLinks.xml"):
        write_files(tmp_path / SITE, f"{name}.gz", content=(dump / name).read_bytes())
    ingest(IngestJob((str(tmp_path / SITE),), str(tmp_path / "out"), answers=True, assignments=(SHARD_ROWS,)))
    assert without_sources(tmp_path / "out") == without_sources(archive)


def test_the_same_from_and_to_s3(dump: Path, archive: Path, s3: str) -> None:
    upload(dump, f"{s3}/ingest-xml/{SITE}")
    source, output = f"{s3}/ingest-xml/{SITE}", f"{s3}/archive-xml"
    ingest(IngestJob((source,), output, answers=True, assignments=(SHARD_ROWS,)))
    assert without_sources(output) == without_sources(archive)


def test_a_parquet_conversion_gives_the_tables_of_the_xml(tmp_path: Path) -> None:
    big_archive.write_archive(tmp_path / "xml", questions=500, seed=1, site=SITE)
    folder = tmp_path / "parquet" / SITE
    folder.mkdir(parents=True)
    for name in ("Posts", "PostLinks"):
        rows = [dict(row.attrib) for row in etree.parse(tmp_path / "xml" / SITE / f"{name}.xml").getroot()]
        columns = sorted(set().union(*rows))
        table = pa.table({column: pa.array([row.get(column) for row in rows], pa.string()) for column in columns})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=300)
    for form in ("xml", "parquet"):
        job = IngestJob((str(tmp_path / form),), str(tmp_path / "out" / form), answers=True)
        assert ingest(job)[SITE]["questions"] == 500
    assert without_sources(tmp_path / "out" / "parquet") == without_sources(tmp_path / "out" / "xml")


@pytest.mark.realdata
def test_a_question_table_from_elsewhere_becomes_an_archive(shared_data: Path, tmp_path: Path) -> None:
    table = shared_data / "quora" / "questions.tsv.xz"
    counts = ingest(IngestJob((str(table),), str(tmp_path), "quora"))["quora"]
    assert counts["questions"] == counts["rows"] == 103_765
    questions = ds.dataset(tmp_path / "questions", partitioning="hive").to_table()
    assert questions["site"].unique().to_pylist() == ["quora"]
    first = questions.slice(0, 1).to_pylist()[0]
    assert first["question_id"] == 1
    assert first["title"].startswith("Which one mistake of yours would you rectify")
