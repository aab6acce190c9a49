"""Folders of dumps as people have them: nothing that looks like a dump is passed over without a word."""

import json
import logging
import os
import zipfile
from pathlib import Path

import pytest
from dump_files import POSTS, upload, write_archive, write_files
from inline import without_ray
from xml_contents import document, question

from dupq import storage
from dupq.dump.sites import find_sites
from dupq.errors import DupqError
from dupq.local_files import LOST
from dupq.pipelines.ingest import IngestJob, ingest

RENAME = "a 7z archive by its first bytes; rename it to end in .7z"
JOIN = "a volume of an archive; join the volumes first: cat 'huge one.7z'.* > 'huge one.7z'"
UNPACK = "packed in a format that is not read; unpack it first"
HALF = "half downloaded; finish the download"


def seven_zip(path: Path) -> Path:
    """An archive of one site, whatever the name of the file."""
    return write_archive(path, {"Posts.xml": POSTS})


def passed_over(folder: Path) -> dict[str, str]:
    """What is said of the files in a folder that has a good dump too, by their names."""
    write_files(folder, "good.com/Posts.xml")
    found = find_sites([str(folder)])
    assert [site.site for site in found.sites] == ["good.com"]
    return {os.path.relpath(uri, folder): why for uri, why in found.passed_over.items()}


def test_files_that_look_like_a_dump_and_are_not_read_are_named(tmp_path: Path) -> None:
    for name in ("big.stackexchange.com.tgz", "backup", "Unconfirmed 7.crdownload", "a.com.7z.part"):
        seven_zip(tmp_path / name)
    write_files(tmp_path, "huge one.7z.001", "huge one.7z.002", "b.tar.xz", "c.rar", "d.7z.aria2", content=b"x")
    write_files(tmp_path, "Posts.xml.part", content=b"x")
    with zipfile.ZipFile(tmp_path / "e.zip", "w") as archive:
        archive.writestr("Posts.xml", POSTS)
    write_archive(tmp_path / "g.7z", {"notes.txt": b"x"})

    assert passed_over(tmp_path) == {
        "Posts.xml.part": HALF,
        "Unconfirmed 7.crdownload": HALF,
        "a.com.7z.part": HALF,
        "b.tar.xz": UNPACK,
        "backup": RENAME,
        "big.stackexchange.com.tgz": RENAME,
        "c.rar": UNPACK,
        "d.7z.aria2": HALF,
        "e.zip": UNPACK,
        "g.7z": "holds neither Posts.xml nor PostLinks.xml; unpack it if a dump is in it",
        "huge one.7z.001": JOIN,
    }


def test_nothing_is_said_of_what_is_no_dump_or_was_made_one(tmp_path: Path) -> None:
    write_files(tmp_path, "README", "readme.txt", "a.png", "Users.xml", "a.com/Tags.xml", "notes.xml", content=b"<x/>")
    write_files(tmp_path, "film.mkv.part", "q.csv", ".hidden.7z.001", "_old/c.zip", content=b"x")
    seven_zip(tmp_path / "a.com-Users.tgz")
    for name in ("b.com.7z.001", "b.com.7z.part", "good.com/Posts.xml.part"):
        write_files(tmp_path, name, content=b"x")
    seven_zip(tmp_path / "b.com.7z")
    with zipfile.ZipFile(tmp_path / "letter.docx", "w") as archive:
        archive.writestr("word/document.xml", b"x")
    write_files(tmp_path, "good.com/Posts.xml")

    found = find_sites([str(tmp_path)])

    assert [site.site for site in found.sites] == ["b.com", "good.com"]
    assert found.passed_over == {}


@pytest.mark.parametrize("back", ["..", "{}/good.com"])
def test_links_to_nothing_and_in_circles_are_named_and_cost_nothing(tmp_path: Path, back: str) -> None:
    folder = tmp_path / "dumps"
    write_files(folder, "good.com/Posts.xml")
    seven_zip(tmp_path / "elsewhere" / "c.com.7z")
    (folder / "good.com" / "again").symlink_to(back.format(folder))
    (folder / "a.7z").symlink_to("/nowhere/a.7z")
    (folder / "b.7z").symlink_to("b.7z")
    (folder / "more").symlink_to(tmp_path / "elsewhere")

    found = find_sites([str(folder)])

    assert [site.site for site in found.sites] == ["c.com", "good.com"]
    links = ("a.7z", "b.7z", "good.com/again")
    assert {os.path.relpath(uri, folder): why for uri, why in found.passed_over.items()} == dict.fromkeys(links, LOST)
    assert [file.relative for file in storage.list_files(str(folder))] == ["good.com/Posts.xml", "more/c.com.7z"]


def test_where_it_is_the_only_one_the_error_names_it_and_says_what_to_do(tmp_path: Path) -> None:
    tgz = seven_zip(tmp_path / "b" / "big.com.tgz")
    link = tmp_path / "c.7z"
    link.symlink_to("nothing")
    for uri, said in {
        tgz: f"{tgz}: no dump in it; {RENAME}",
        tgz.parent: f"{tgz.parent}: no dump in it; passed over: {tgz} ({RENAME})",
        link: f"{link}: {LOST}",
    }.items():
        for foreign in (False, True):
            with pytest.raises(DupqError) as caught:
                find_sites([str(uri)], "x.com", foreign)
            assert str(caught.value) == said


def test_on_s3_only_files_named_like_a_dump_are_looked_into(s3: str, tmp_path: Path) -> None:
    for name in ("a.stackexchange.com.tgz", "SITE-Posts.bin", "backup"):
        seven_zip(tmp_path / name)
    write_files(tmp_path, "huge one.7z.001", "b.com/Posts.xml")
    uri = upload(tmp_path, f"{s3}/folders")

    found = find_sites([uri])

    assert found.passed_over == {
        f"{uri}/SITE-Posts.bin": RENAME,
        f"{uri}/a.stackexchange.com.tgz": RENAME,
        f"{uri}/huge one.7z.001": JOIN,
    }


@without_ray()
def test_a_job_says_what_it_passed_over_and_counts_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dumps, output = tmp_path / "dumps", tmp_path / "out"
    write_files(dumps, "a.com/Posts.xml", content=document(question(1, Title="x&\x0ey").replace(b"\x0e", b"&#x0E;")))
    (dumps / "c.7z").symlink_to("/nowhere/c.7z")
    logging.getLogger("dupq").addHandler(caplog.handler)

    with caplog.at_level(logging.INFO, "dupq"):
        ingest(IngestJob((str(dumps),), str(output)))

    assert f"passed over: {dumps}/c.7z ({LOST})" in caplog.messages
    assert caplog.messages[-1].endswith("   files passed over 1")
    assert "a.com: 1 forbidden characters, 1 questions, 1 rows" in caplog.messages
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["passed_over"] == {f"{dumps}/c.7z": LOST}
    assert list(manifest["sites"]["a.com"]["files"].values()) == [
        {"rows": 1, "questions": 1, "rejects": 0, "forbidden_characters": 1}
    ]
