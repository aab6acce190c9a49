"""README and the docs that people write are easy to read: short sentences, and none of their writers' habits."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MADE = {"commands.md", "settings.md", "tables.md"}  # from the code
PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in ROOT.glob("docs/*.md") if page.name not in MADE)]
MOST_WORDS = 30
HABITS = {  # and what to write
    r"\b(those|that) of (that|those|which)\b|\bof (these|whom)\b|\bthe latter\b": "the noun again",
    r"\b(is|are) no (number|text|letter|site|file|link|part|pair|question)s?\b": "is not a …",
    r"\b(anew|beside|likewise|for good|at work|goes on|comes next)\b": "again, next to, also, …",
    r"\b(nobody|anybody|whoever)\b": "who it is",
    r"\b(so many|so much|not more than)\b": "the number",
    r"\b(a|an) \w+ a \w+\b": "per",
    r"\bNeeded (is|are)\b|\bis (told|said|asked|given|wanted)\b": "who does it",
}


def sentences(page: str) -> list[str]:
    """The sentences of a page's paragraphs, items and cells, without code, headings, tables' lines and addresses."""
    text = re.sub(r"^(`{3,}).*?^\1", "", page, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(    .*|#.*|!\[.*)$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    pieces = re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) ?)|(?<!\|)\|", text)
    return [sentence.strip() for piece in pieces for sentence in re.split(r"(?<=[.?!])[*\"]*\s+", piece)]


def test_a_sentence_ends_at_its_mark_and_code_is_none() -> None:
    page = "# A heading\n\nOne two. Three [four](five six)?\n\n    code of many words\n\n- An item\n- another\n"
    assert [found for found in sentences(page) if found] == ["One two.", "Three [four]?", "- An item", "- another"]


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_long_or_has_a_habit_that_reads_badly(page: str) -> None:
    every = sentences((ROOT / page).read_text())
    assert not [found for found in every if len(re.findall(r"[\w'’]+", found)) > MOST_WORDS]
    text = "\n".join(every)
    assert not [(found[0], instead) for habit, instead in HABITS.items() for found in re.finditer(habit, text)]
