"""What `dupq.find_duplicates` makes of 1,000 titles among which variants of every kind are planted.

    python benchmarks/titles.py [--quick] [--encoder FOLDER | --model NAME] [--show KIND] [--json FILE]

The titles are of travel and cs (DUPQ_SHARED_DATA, default: ../shared/data). Thirty of them have a variant of each kind:
copies and titles with a typing error are the same question; those with other words, numbers, operators or a negation
are other ones, which may be ranked, and joined if the encoder is sure, but are no near duplicates.

Forty titles of other sites have a free paraphrase (paraphrases.tsv); every other one is held out: nothing that
decides was chosen by it.

Of each kind: variants found as exact copies or near duplicates, joined in whatever way, ranked first (no other pair of
the variant is likelier), found at all. --quick plants five of each kind among 200.
"""

import argparse
import csv
import functools
import io
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import py7zr
from lxml import etree

import dupq
from dupq.encoders.sentence_models import load_model, model_folder

SHARED = Path(os.environ.get("DUPQ_SHARED_DATA", Path(__file__).parents[1].parent / "shared" / "data"))
SITES = ("travel.stackexchange.com", "cs.stackexchange.com")
WORDS = re.compile(r"(?<!\\)\b[A-Za-z]{5,}")
Variant = tuple[str, str]  # a title, and another one like it
_REPHRASED = (
    (r"^How (?:do I|can I|to) (.+?)\??$", r"What is the best way to \1?"),
    (r"^Is it possible to (.+?)\??$", r"Can one \1?"),
    (r"^(?:Can|Could) I (.+?)\??$", r"Am I allowed to \1?"),
    (r"^What is the difference between (.+?) and (.+?)\??$", r"How do \1 and \2 differ?"),
    (r"^Do I need (.+?)\??$", r"Is \1 required?"),
    (r"^What is (.+?)\??$", r"Explanation of \1"),
    (r"^Why (?:is|are|does|do) (.+?)\??$", r"The reason why \1"),
)


def copied(title: str, _: random.Random) -> Variant:
    """White space alone is another."""
    return title, f" {title.replace(' ', '  ')}"


def rewritten(title: str, _: random.Random) -> Variant | None:
    """Case, quotes and the end are others; a formula has its case."""
    return None if "$" in title else (title, title.rstrip("?").upper().replace("'", "’") + "?")


def mistyped(title: str, draw: random.Random) -> Variant | None:
    """A letter of one word is changed, left out, doubled, or swapped with the next."""
    words = list(WORDS.finditer(title))
    if not words:
        return None
    word = draw.choice(words)
    at = draw.randrange(word.start() + 1, word.end() - 1)
    letter, following = title[at], title[at + 1]
    wrong = (draw.choice("bcdfgklmprst") + following, following, letter * 2 + following, following + letter)
    return title, title[:at] + draw.choice(wrong) + title[at + 2 :]


def in_front(title: str, draw: random.Random) -> Variant:
    """Another word comes first."""
    return title, f"{draw.choice(('Windows', 'Homework', 'Beginner', 'Problem'))}: {title}"


def behind(title: str, draw: random.Random) -> Variant:
    """Another word comes last."""
    return title, f"{title.rstrip('?')} {draw.choice(('quickly', 'online', 'for students', 'in winter'))}?"


def swapped(title: str, draw: random.Random) -> Variant | None:
    """Two words have changed places."""
    words = title.split(" ")
    long = [place for place, word in enumerate(words) if WORDS.fullmatch(word)]
    if len(long) < 2:
        return None
    one, other = draw.sample(long, 2)
    words[one], words[other] = words[other], words[one]
    return None if words == title.split(" ") else (title, " ".join(words))


def renumbered(title: str, draw: random.Random) -> Variant:
    """Another year."""
    year = draw.randrange(1990, 2020)
    return f"{title} ({year})", f"{title} ({year + 1})"


def counted(title: str, draw: random.Random) -> Variant:
    """Another number in words."""
    one, other = draw.sample(("two", "three", "four", "seven", "first", "third"), 2)
    return f"{title} ({one} times)", f"{title} ({other} times)"


def of_version(title: str, draw: random.Random) -> Variant:
    """Another version."""
    one, other = draw.sample(("Python 2", "Python 3", "Java 8", "Java 11", "C", "C++", "C#"), 2)
    return f"{title} [{one}]", f"{title} [{other}]"


def negated(title: str, _: random.Random) -> Variant | None:
    """The verb is denied, or "with" is "without"."""
    found = re.sub(r"\b(is|are|can|does|do|should|will|was|need)\b", r"\1 not", title, count=1, flags=re.IGNORECASE)
    found = title.replace(" with ", " without ") if " with " in title else found
    return None if found == title else (title, found)


def operated(title: str, draw: random.Random) -> Variant:
    """Another operator, or formula."""
    one, other = draw.sample(
        ("a < b", "a > b", "a == b", "a != b", "a && b", "a || b", r"$\forall x$", r"$\exists x$"), 2
    )
    return f"{title}: {one}", f"{title}: {other}"


def rephrased(title: str, _: random.Random) -> Variant | None:
    """The same in another form of question."""
    for form, other in _REPHRASED:
        if re.match(form, title):
            return title, re.sub(form, other, title)
    return None


KINDS: dict[str, Callable[[str, random.Random], Variant | None]] = {
    "copy, white space": copied,
    "copy, case and quotes": rewritten,
    "typing error": mistyped,
    "word in front": in_front,
    "word behind": behind,
    "swapped words": swapped,
    "other year": renumbered,
    "other number word": counted,
    "other version": of_version,
    "negation": negated,
    "operator or formula": operated,
    "rephrased": rephrased,
}
SAME = frozenset(("copy, white space", "copy, case and quotes", "typing error"))  # these must be near duplicates
OTHER = frozenset(KINDS) - SAME - {"rephrased"}  # these must not be
PARAPHRASED = ("paraphrase", "paraphrase, held out")
COLUMNS = ("planted", "by words", "joined", "ranked first", "found")


def main() -> None:
    """Print the table, and write it if that is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="five of each kind among 200 titles")
    reads = parser.add_mutually_exclusive_group()
    reads.add_argument("--encoder", metavar="FOLDER", help="a saved encoder (default: the one that ships with dupq)")
    reads.add_argument(
        "--model", metavar="NAME", help="a sentence-transformers model: a folder, package, or on the hub"
    )
    parser.add_argument("--show", choices=(*KINDS, *PARAPHRASED), metavar="KIND", help="print the pairs of a kind")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    titles, planted = plant(1_000 // (5 if options.quick else 1), 5 if options.quick else 30)
    encoder = load_model(model_folder(options.model, "--model ")).encode if options.model else options.encoder
    found = rows_of(titles, planted, encoder)
    table = summed(found)
    print(f"{'kind':24}" + "".join(f"{name:>14}" for name in COLUMNS))
    for kind, figures in table.items():
        print(f"{kind:24}" + "".join(f"{figures[name]:>14}" for name in COLUMNS))
    for row in found:
        if row["kind"] == options.show:
            print(f"{row['source']:15}{row['probability']:6.2f}  {row['title']}  |  {row['variant']}")
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")


def plant(count: int, each: int) -> tuple[list[str], list[tuple[str, int, int]]]:
    """`count` titles, and of each planted variant its kind, the row of its title, and its own. Always the same ones."""
    draw = random.Random(41)
    pool = []
    for site in SITES:  # titles of fewer than four words are often no question
        pool += sorted({title for title in _titles(site).values() if title.count(" ") >= 3})
    draw.shuffle(pool)
    titles: list[str] = []
    planted = []
    for kind, make in KINDS.items():
        wanted = each
        while wanted:
            variant = make(pool.pop(), draw)
            if variant is not None:
                planted.append((kind, len(titles), len(titles) + 1))
                titles += variant
                wanted -= 1
    with (Path(__file__).parent / "paraphrases.tsv").open(encoding="utf-8") as lines:
        for number, row in enumerate(csv.DictReader(lines, delimiter="\t")):
            planted.append((PARAPHRASED[number % 2], len(titles), len(titles) + 1))
            titles += [_titles(row["site"])[int(row["question_id"])], row["paraphrase"]]
    return titles + pool[: count - len(titles)], planted


@functools.cache
def _titles(site: str) -> dict[int, str]:
    return titles_of(next(SHARED.glob(f"*/{site}.7z")))


def titles_of(dump: Path) -> dict[int, str]:
    """The titles of a dump by their ids."""
    factory = py7zr.io.BytesIOFactory(1 << 32)
    with py7zr.SevenZipFile(dump) as packed:
        name = next(name for name in packed.getnames() if name.endswith("Posts.xml"))
        packed.extract(targets=[name], factory=factory)
    rows = etree.iterparse(io.BytesIO(factory.products[name].read()), tag="row")
    return {int(row.get("Id")): row.get("Title") for _, row in rows if row.get("Title")}


def rows_of(titles: list[str], planted: list[tuple[str, int, int]], encoder: Any = None) -> list[dict]:
    """What became of each planted variant: source and probability of its pair, whether it is joined, and first."""
    pairs = dupq.find_duplicates(titles, encoder=encoder).pairs.arrow().to_pylist()  # the likeliest first
    first: dict[int, dict] = {}
    for row in pairs:
        for side in ("left", "right"):
            first.setdefault(row[side], row)
    by_ends = {(row["left"], row["right"]): row for row in pairs}
    absent = {"source": "", "probability": 0.0, "joined": False}
    return [
        {"kind": kind, "title": titles[left], "variant": titles[right], **(row := by_ends.get((left, right), absent))}
        | {"is_first": first.get(right) is row}
        for kind, left, right in planted
    ]


def summed(found: list[dict]) -> dict[str, dict[str, int]]:
    """The counts of each kind, by COLUMNS."""
    table = {}
    for kind in (*KINDS, *PARAPHRASED):
        rows = [row for row in found if row["kind"] == kind]
        by_words = sum(row["source"] in ("exact", "near_duplicate") for row in rows)
        counts = (sum(row[name] for row in rows) for name in ("joined", "is_first"))
        table[kind] = dict(
            zip(COLUMNS, (len(rows), by_words, *counts, sum(bool(row["source"]) for row in rows)), strict=True)
        )
    return table


if __name__ == "__main__":
    main()
