"""What the tokens of a title lack: its signs, the case of short words, other spellings of one word, and politeness.

Tokens have no brackets, operators, emoji or case, and a superscript looks like any digit. Two titles are copies only if
all this agrees, too. What says nothing is left out: quotes in pairs, dashes between words, punctuation behind a word,
and "Thanks!" at the end.

The other way round, one word may have several spellings: "what's" and "what is", "5mm" and "5 mm", "10,000" and
"10000", "ё" and "е", the letters and digits of several keyboards. Encoders read tokens as they are written; titles are
compared in one spelling.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import regex

from dupq.text.languages import is_stop_word, one_spelling, words_by_language
from dupq.text.tokens import as_read, tokens

# Titles without signs: most, and those with hyphens and apostrophes between letters, and punctuation behind words
_PLAINEST = re.compile(r"[A-Za-z0-9 ]*[?.]?")
_PLAIN = re.compile(r"(?:[A-Za-z0-9 ]|(?<=[A-Za-z])[-'](?=[A-Za-z])|(?<=[A-Za-z])[,;:] )*(?:(?<=[a-z]{2})[?.!]+)?")
# Web addresses, formulas, TeX commands, then anything that is neither a word nor a space
_SIGN = regex.compile(r"(?P<whole>(?:https?|ftp)://\S+|www\.\S+|\$\$?[^$]+\$\$?|\\[A-Za-z]+)|(?P<run>[^\w\s\p{M}]+)")
_QUOTE = r"\p{Quotation_Mark}`"
_QUOTED = regex.compile(
    rf"(?<![\w\p{{M}}])[{_QUOTE}]+(?=\S)((?:[^{_QUOTE}]|(?<=\p{{L}})'(?=\p{{L}}))+)(?<=\S)[{_QUOTE}]+(?![\w\p{{M}}])"
)
_ASIDE = regex.compile(r"(?<!\S)\((?=[^()]*\p{L}{3})([\p{L}\p{M}', -]+)\)(?![^\s.,:;?!])")  # "(outdoor)"; not "(a, b)"
_ENDS = regex.compile(r"[\p{Terminal_Punctuation}]+$")
_DASHES = regex.compile(r"\p{Pd}+")
_BETWEEN_WORDS = regex.compile(r"[\p{Pd}.,:;/&'·]|\p{Pd}+")
_STYLE = regex.compile(r"(?<=[+#%])-$")  # "C++-style"
_OPENING = "'¿¡"
_AFTER_A_STOP_WORD = frozenset([*":,;/&", "(?)", "(!)"])  # these and hyphens are signs there ("What does : do?")
_LAST_WORD = regex.compile(r"([\p{L}\p{M}']+)\s*$")

_POLITE = (
    r"(?:(?:many )?(?:thanks|thank you)(?: (?:in advance|all|a lot|so much|everyone))?|thx|cheers|(?:please[,.]? )?help"
    r"(?: me| needed| wanted)?(?:[,.]? please)?|please|urgent|urgently|solved|(?:hi|hello)(?: all| everyone)?"
    r"|(?:vielen )?dank|danke|bitte(?: um)? hilfe|hilfe|dringend|gelöst|bitte|merci(?: d'avance)?|aide|svp|résolu"
    r"|(?:muchas )?gracias|ayuda|urgente|por favor|resuelto|obrigado|obrigada|ajuda|resolvido|grazie|aiuto|risolto"
    r"|спасибо|помогите|помощь|срочно|пожалуйста|решено|شكرا|مساعدة)"
)
_POLITE_WORDS, _AROUND_WORDS = frozenset(regex.findall(r"\p{L}+", _POLITE)), ".,:;!?…()[]"
_POLITE_FIRST = regex.compile(rf"(?:\W*{_POLITE}\s*(?:[:!.,;)\]]|\p{{Pd}}(?=\s))[\s\p{{Pd}}:.!]*)+", regex.IGNORECASE)
_POLITE_LAST = regex.compile(
    rf"(?:(?:(?<=[.?!…])|[.,;!(\[]|(?<=\s)\p{{Pd}})\s*+{_POLITE}[^\w\p{{Quotation_Mark}}]*)+$", regex.IGNORECASE
)

_DIGIT = re.compile(r"\d")
_THOUSANDS = regex.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d,])")
_UNIT = regex.compile(r"(?<![\p{L}\d.,])(\d+(?:[.,]\d+)*)(?=\p{L})")
_HYPHEN = regex.compile(
    r"(?:(?<=(?<![\w-])\p{L})|(?<=(?<![\w-])\p{L}{2})(?=-\p{L}{2}(?![\w-])))-(?=\p{L})"
)  # "e-mail", "Wi-Fi"
_SHORT_FORM = regex.compile(
    r"\b(what|who|where|when|how|why|that|there|here|it|he|she|i|you|we|they)['’](s|re|m|ve|ll|d)\b", regex.IGNORECASE
)
_LONG_FORM = {"s": "is", "re": "are", "m": "am", "ve": "have", "ll": "will", "d": "would"}

# Words whose case tells: "mW" and "MW" (not "PDF"), pronouns that are also names, options, what follows a number, and
# functions and variables.
_OPTION = regex.compile(r"(?<=(?<![\w\p{Pd}])-)\p{L}{1,3}(?![\w'])")
_CASED = regex.compile(
    r"(?<![\w'])(?:\p{L}\p{Lu}|\p{Ll}\p{L}?\p{Lu}\p{L}?|\p{Lu}\p{Lu}\p{Ll}|\p{Lu}\p{Ll}\p{Lu}|[KMGTP]b|us|it|who)(?![\w'])"
    rf"|{_OPTION.pattern}|(?<=\d ?)\p{{L}}{{1,3}}(?![\w'])|(?<![\w'])\p{{L}}(?= ?[(^=<>])"
)
_SIGN_OF_CASE = re.compile(r"[0-9(^=<>]|-\w")
_MAY_BE_CASED = re.compile(rf"[A-Za-z][A-Z]|[^\x00-\x7f]|[KMGTP]b|{_SIGN_OF_CASE.pattern}")
# a title of these but not of those has all words with capitals
_CAPITAL_WORD, _LOWER_WORD = (regex.compile(rf"(?<!\w)\p{{{case}}}\p{{L}}{{3}}") for case in ("Lu", "Ll"))


class Title(NamedTuple):
    """A title as it is compared."""

    words: str  # tokens in one spelling, joined by single spaces
    signs: str
    cased: str = ""  # short words as written, where their case tells


_NOTHING = Title("", "")


def written_titles(titles: pa.Array, language: str) -> pa.Array:
    """Return what the tokens of each title lack (string): the fields of Title with tabs between them, or nothing.

    There are no words where tokens have them in this spelling.
    """
    written = (_written(title, language) if title else _NOTHING for title in titles.to_pylist())
    return pa.array(["\t".join(title) if any(title) else "" for title in written], pa.string())


def title_of(written: str, words: str) -> Title:
    """Return the title of which `written_titles` gave `written`; its tokens are `words`."""
    spelt, signs, cased = written.split("\t") if written else _NOTHING
    return Title(spelt or words, signs, cased)


def _written(title: str, language: str) -> Title:
    words = title.split()
    title = kept = " ".join(words)
    if not _POLITE_WORDS.isdisjoint(word.strip(_AROUND_WORDS).casefold() for word in words[:1] + words[-1:]):
        kept = _without_politeness(title)
    if "," in kept:
        kept = _THOUSANDS.sub(lambda number: number[1].replace(",", ""), kept)
    spelt = _spelt(kept, language)
    respelt = "" if spelt == title else " ".join(tokens(spelt))
    is_plain = _PLAINEST.fullmatch(kept) or _PLAIN.fullmatch(kept)
    signs = "" if is_plain else " ".join(_signs(kept, language))
    return Title(respelt, signs, " ".join(_cased(kept)))


def _without_politeness(title: str) -> str:
    """Return the title without polite words that punctuation separates from the rest, unless it has no others."""
    first = _POLITE_FIRST.match(title)
    kept = title[first.end() :] if first else title
    last = _POLITE_LAST.search(kept)
    kept = kept[: last.start()] if last else kept
    return kept if kept.strip() else title


def _spelt(title: str, language: str) -> str:
    """Return the title in one spelling."""
    spelt = _UNIT.sub(r"\1 ", title) if _DIGIT.search(title) else title
    if "-" in title:
        spelt = _HYPHEN.sub("", spelt)
    if language == "english" and ("'" in title or "’" in title):
        spelt = _SHORT_FORM.sub(lambda form: f"{form[1]} {_LONG_FORM[form[2].lower()]}", spelt)
    if spelt.isascii():
        return spelt
    read = as_read(spelt)
    return spelt if (one := one_spelling(read)) == read else one


def _signs(title: str, language: str) -> Iterator[str]:
    """Yield the signs of a title in their order."""
    text = title
    if not text.isascii():
        text = as_read("".join(map(_raised, text))).replace("″", '"').replace("−", "-").replace("⁄", "/")
    text = _QUOTED.sub(r"\1", text)
    text = _ASIDE.sub(r"\1", text) if "(" in text else text
    for match in _SIGN.finditer(text):
        sign = match["whole"]
        if sign is None:
            sign = _sign(match, text, language)
        elif sign[0] not in "$\\":
            sign = _ENDS.sub("", sign)
        if sign:
            yield "".join(sign.split())


@functools.lru_cache(4096)
def _raised(character: str) -> str:
    """Return a superscript or subscript with a sign before it; other characters as they are."""
    kind = unicodedata.decomposition(character).split(" ")[0] if character > "\x7f" else ""
    return {"<super>": "^", "<sub>": "⌄"}.get(kind, "") + character


def _sign(match: regex.Match[str], text: str, language: str) -> str:
    """Return what of the run of signs `match` in `text` counts."""
    run, begin, end = match[0], match.start(), match.end()
    before, after = text[begin - 1 : begin].strip(), text[end : end + 1].strip()
    if before and after:
        if before.isdigit() and after.isdigit() and run in ".,/:":
            return run
        return "" if _BETWEEN_WORDS.fullmatch(run) else _STYLE.sub("", run) if after.isalpha() else run
    if after:
        run = run.lstrip(_OPENING)
        if _DASHES.fullmatch(run):
            return "-" if after.isdigit() else run.strip("–—")
        return run
    if before:
        is_word = text[max(0, begin - 2) : begin - 1].isalpha()
        if run[0] == "!" and before.islower() and not is_word:
            return "!"  # a factorial
        if run == "," and before.isdigit() and text[end : end + 2].strip().isdigit():
            return ","  # "(0, 1)"
        run = _ENDS.sub("", run)
        is_prime = run == "'" and not is_word  # else "the students' books"
        return "" if (run == "'" and not is_prime) or _DASHES.fullmatch(run) else run
    if end == len(text) and begin:
        run = run.rstrip(".?!") or (run[1:] and run)
    if run not in _AFTER_A_STOP_WORD and not _DASHES.fullmatch(run):
        return run
    last = _LAST_WORD.search(text, 0, begin)
    is_named = not begin or (last is not None and is_stop_word(last[1].casefold(), language))
    return run if is_named and run.isascii() else ""


def _cased(title: str) -> list[str]:
    """Return the short words of a title whose case tells, as they are written."""
    if title.isupper():
        return []
    if title.islower():  # by somebody who writes no capitals, but in options
        return _OPTION.findall(title)
    may_be_cased = _SIGN_OF_CASE if title.isascii() and title[1:].islower() else _MAY_BE_CASED
    if not may_be_cased.search(title) and all(word not in title for word in (" us", " it", " who")):
        return []
    read = as_read(title)
    words: list[str] = _CASED.findall(read)
    if words and not _LOWER_WORD.search(read) and len(_CAPITAL_WORD.findall(read)) > 1:
        words = [word for word in words if not word.istitle() or len(word) == 1]
    return words


def choices_of(language: str) -> Callable[[Title], dict[str, str]]:
    """Return a function from a title to what it chooses where there is a choice: of short words with another case, and
    of small words of which only one can be meant. Titles contradict each other if they choose otherwise.
    """
    meanings: dict[str, list[tuple[str, str]]] = {}
    for group in words_by_language().get(language, {}).get("opposed", "").splitlines():
        for meaning in group.split(" / "):
            for word in meaning.split(" "):
                meanings.setdefault(word, []).append((group, meaning))

    def choices(title: Title) -> dict[str, str]:
        chosen: dict[str, list[str]] = {}
        for word in title.cased.split():
            chosen.setdefault(word.casefold(), []).append(word)
        for word in title.words.split(" "):
            for group, meaning in meanings.get(word, ()):
                chosen.setdefault(group, []).append(meaning)
        return {choice: " ".join(each) for choice, each in chosen.items()}

    return choices
