"""The batches of a dump's files, and how many bytes of its file each counts for."""

import functools
from pathlib import Path

import pytest
from dump_files import COMPRESS, noise, write_archive, write_files
from xml_contents import document, link, question

from dupq.dump import reading, xml_files
from dupq.dump.files import DumpSite
from dupq.dump.reading import Batch, Ingest, file_ranges
from dupq.dump.sites import find_sites
from dupq.settings.sections import IngestSettings


def all_batches(site: DumpSite) -> list[Batch]:
    job = Ingest("", IngestSettings())
    return [batch for file_range in file_ranges(site) for batch in reading.batches(file_range, job)]


def lines(count: int) -> str:
    """Text that does not get much smaller."""
    return noise(count // 2).hex()


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1 << 12
    monkeypatch.setattr(reading, "SEGMENT_SIZE", size)
    monkeypatch.setattr(reading, "segments", functools.partial(xml_files.segments, size=size))


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("others", [{}, {"Comments.xml": noise(50_000)}])
def test_the_members_of_an_archive_count_for_the_whole_of_it_together(others: dict, tmp_path: Path) -> None:
    posts = document(b"".join(question(number, Body=lines(900)) for number in range(1, 60)))
    links = document(b"".join(link(number, number + 1) for number in range(1, 200)), "postlinks")
    archive = write_archive(tmp_path / "a.com.7z", {"PostLinks.xml": links, **others, "Posts.xml": posts})
    (site,) = find_sites([str(archive)]).sites

    found = all_batches(site)

    assert len(found) > 10
    assert all(batch.packed_bytes >= 0 for batch in found)
    assert sum(batch.packed_bytes for batch in found) == archive.stat().st_size


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_the_batches_of_a_file_count_for_the_whole_of_it(suffix: str, tmp_path: Path) -> None:
    posts = document(b"".join(question(number, Body=lines(900)) for number in range(1, 60)))
    write_files(tmp_path / "a.com", f"Posts.xml{suffix}", content=posts)
    (site,) = find_sites([str(tmp_path)]).sites

    assert (
        sum(batch.packed_bytes for batch in all_batches(site))
        == (tmp_path / "a.com" / f"Posts.xml{suffix}").stat().st_size
    )
