"""The batches of a dump's files, and how many bytes of its file each counts for."""

import functools
from pathlib import Path

import pytest
from dump_files import noise, write_archive, write_files
from xml_contents import document, link, question

from dupq.dump import reading, xml_files
from dupq.dump.reading import Ingest, file_ranges
from dupq.dump.sites import find_sites
from dupq.settings.sections import IngestSettings

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
