"""All texts of the shared data, read plainly: titles, HTML and the texts in it, questions in English and Arabic."""

import csv
import io
import lzma
from collections.abc import Iterator
from pathlib import Path

import py7zr
from lxml import etree

from dupq.text.tokens import html_to_text


def real_texts(shared_data: Path, most: int | None = None) -> Iterator[tuple[str, list[str]]]:
    """Name and texts of each source; with `most`, so many of each."""
    for archive in sorted((shared_data / "dumps").glob("*.7z")):
        titles, bodies = (texts[:most] for texts in _posts(archive))
        yield f"{archive.stem} titles", titles
        yield f"{archive.stem} HTML", bodies
        yield f"{archive.stem} texts", [html_to_text(body, "prefixed") for body in bodies]
    with lzma.open(shared_data / "quora" / "questions.tsv.xz", "rt", encoding="utf-8", newline="") as stream:
        yield "quora", [row[1] for row in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)][:most]
    pairs = (shared_data / "arabic" / "pairs.tsv").read_text("utf-8").splitlines()
    yield "arabic", [text for pair in pairs for text in pair.split("\t")[:2]][:most]
    for path in sorted((shared_data / "semeval").iterdir()):
        content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        yield path.name, content.decode("utf-8").splitlines()[:most]


def _posts(archive: Path) -> tuple[list[str], list[str]]:
    factory = py7zr.io.BytesIOFactory(1 << 32)
    with py7zr.SevenZipFile(archive) as packed:
        name = next(name for name in packed.getnames() if name.endswith("Posts.xml"))
        packed.extract(targets=[name], factory=factory)
    found: tuple[list[str], list[str]] = ([], [])
    for _, row in etree.iterparse(io.BytesIO(factory.products[name].read()), tag="row"):
        found[0].append(row.attrib.get("Title", ""))
        found[1].append(row.attrib.get("Body", ""))
    return found
