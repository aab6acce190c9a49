"""The real dumps, read by dupq and by a plain XML parser."""

import datetime
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import py7zr
import pytest
from lxml import etree
from site_tables import read_site

from dupq.dump.sites import find_sites
from dupq.errors import DupqError

pytestmark = pytest.mark.realdata

SITES = {
    "bicycles.meta.stackexchange.com": (453, 10),
    "cardano.stackexchange.com": (1_042, 10),
    "cs.stackexchange.com": (6_118, 297),
    "cstheory.meta.stackexchange.com": (589, 13),
    "quantumcomputing.stackexchange.com": (612, 14),
    "travel.stackexchange.com": (4_919, 798),
}


def unpacked(archive: Path, folder: Path) -> Path:
    with py7zr.SevenZipFile(archive) as packed:
        packed.extractall(folder)
    return folder


def plain_rows(path: Path) -> Iterator[dict[str, str]]:
    for _, element in etree.iterparse(io.BytesIO(path.read_bytes()), tag="row"):
        yield dict(element.attrib)


def time_of(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(f"{text}+00:00")


NUMBERS = {"question_id": "Id", "score": "Score", "view_count": "ViewCount", "answer_count": "AnswerCount"}
NUMBERS |= {"accepted_answer_id": "AcceptedAnswerId"}
TIMES = {"creation_date": "CreationDate", "closed_date": "ClosedDate"}


def plain_question(attributes: dict[str, str]) -> dict[str, Any]:
    parsed = ((name, of, parse) for names, parse in ((NUMBERS, int), (TIMES, time_of)) for name, of in names.items())
    return {name: parse(attributes[of]) if of in attributes else None for name, of, parse in parsed} | {
        "title": attributes.get("Title", ""),
        "body_html": attributes.get("Body", ""),
        "tags": attributes["Tags"][1:-1].split("><") if "Tags" in attributes else [],
        "owner": attributes.get("OwnerUserId", attributes.get("OwnerDisplayName")),
        "content_license": attributes.get("ContentLicense"),
        "own_id": None,  # only tables from elsewhere have this, and the next two
        "url": None,
        "scope": [],
    }


def plain_answer(attributes: dict[str, str], accepted: set[int]) -> dict[str, Any]:
    return {
        "answer_id": int(attributes["Id"]),
        "question_id": int(attributes["ParentId"]),
        "body_html": attributes.get("Body", ""),
        "score": int(attributes["Score"]),
        "is_accepted": int(attributes["Id"]) in accepted,
    }


def plain_link(attributes: dict[str, str]) -> tuple[Any, ...]:
    name = {"1": "linked", "3": "duplicate"}[attributes["LinkTypeId"]]
    return int(attributes["PostId"]), int(attributes["RelatedPostId"]), name, time_of(attributes["CreationDate"])


@pytest.mark.parametrize("site", SITES)
def test_a_real_dump_is_read_as_a_plain_xml_parser_reads_it(site: str, shared_data: Path, tmp_path: Path) -> None:
    archive = shared_data / "dumps" / f"{site}.7z"
    folder = unpacked(archive, tmp_path / "plain")
    posts = list(plain_rows(folder / "Posts.xml"))
    questions = [plain_question(attributes) for attributes in posts if attributes["PostTypeId"] == "1"]
    accepted = {question["accepted_answer_id"] for question in questions}
    answers = [plain_answer(attributes, accepted) for attributes in posts if attributes["PostTypeId"] == "2"]
    links = sorted(map(plain_link, plain_rows(folder / "PostLinks.xml")))

    (dump,) = find_sites([str(archive)]).sites
    tables = read_site(dump, tmp_path / "archive", answers=True, shard_rows=1_000)

    assert dump.site == site
    assert tables.questions.to_pylist() == sorted(questions, key=lambda question: question["question_id"])
    assert tables.tables["answers"].to_pylist() == sorted(answers, key=lambda answer: answer["answer_id"])
    assert [tuple(values.values()) for values in tables.links.to_pylist()] == links
    assert tables.rejects.num_rows == 0
    files = {Path(source).name: counts for source, counts in tables.counts["files"].items()}
    others = len(posts) - len(questions) - len(answers)
    assert files == {
        "Posts.xml": without_zeros(rows=len(posts), questions=len(questions), answers=len(answers), other_posts=others),
        "PostLinks.xml": without_zeros(rows=len(links), links=len(links)),
    }
    duplicates = tables.links.column("link_type").to_pylist().count("duplicate")
    assert (tables.questions.num_rows, duplicates) == SITES[site]


def without_zeros(**counts: int) -> dict[str, int]:
    """Counts as manifests have them."""
    return {name: count for name, count in counts.items() if count} | {"rejects": 0}


def test_a_plain_folder_gives_the_same_tables_as_the_archive_and_as_that_without_the_program(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = shared_data / "dumps" / "cardano.stackexchange.com.7z"
    unpacked(archive, tmp_path / "plain" / "cardano.stackexchange.com")
    (packed,), (plain,) = find_sites([str(archive)]).sites, find_sites([str(tmp_path / "plain")]).sites
    tables = read_site(packed, tmp_path / "a").tables
    assert read_site(plain, tmp_path / "b").tables == tables
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    assert read_site(packed, tmp_path / "c").tables == tables


@pytest.mark.parametrize(("share", "has_program"), [(0.5, True), (0.999, False)])
def test_a_real_archive_that_was_cut_is_told(
    share: float, has_program: bool, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (shared_data / "dumps" / "cardano.stackexchange.com.7z").read_bytes()
    archive = tmp_path / "cardano.stackexchange.com.7z"
    archive.write_bytes(content)
    (dump,) = find_sites([str(archive)]).sites
    archive.write_bytes(content[: int(len(content) * share)])
    if not has_program:
        monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    with pytest.raises(DupqError, match="damaged, cut short or no"):
        find_sites([str(archive)])
    with pytest.raises(DupqError, match="damaged, cut short or no"):
        read_site(dump, tmp_path / "archive")
