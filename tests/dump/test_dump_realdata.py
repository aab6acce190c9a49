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

pytestmark = pytest.mark.realdata

SITES = {
    "bicycles.meta.stackexchange.com": (453, 10),
    "cardano.stackexchange.com": (1_042, 10),
    "cs.stackexchange.com": (6_118, 297),
    "cstheory.meta.stackexchange.com": (589, 13),
    "quantumcomputing.stackexchange.com": (612, 14),
    "travel.stackexchange.com": (4_919, 798),
}


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
    with py7zr.SevenZipFile(archive) as packed:
        packed.extractall(folder := tmp_path / "plain")
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
