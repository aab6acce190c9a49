"""The pieces that texts are joined from: bytes that are escaped once, at the start, and never again.

Words of pure chance would not compress, and real text does. So texts are made of phrases that recur by Zipf's
law, and between any two phrases stands a separator, which is also where sentences and paragraphs end and where
links, numbers and inline code stand. A phrase means a row of concepts. A concept has a word in each *wording*, so
that the same phrase in another wording says the same in other words; function words have no synonyms, and fall
anew in each wording.
"""

import functools
import html
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

WORDINGS = 3
TEXT, CODE, LIST, NOTHING = range(4)  # the kinds of block, and what follows the last one

PHRASES = 160_000
TOPICS = 600
TOPIC_PHRASES = 8_000
TAG_ROWS = 8  # rows of tags for each topic
LAW_BITS, TOPIC_LAW_BITS, CODE_LAW_BITS, SEPARATOR_LAW_BITS = 20, 14, 14, 16

_CONCEPTS = 40_000
_PHRASE_LENGTHS = {1: 0.18, 2: 0.25, 3: 0.27, 4: 0.17, 5: 0.09, 6: 0.04}  # words: share of the phrases
_ZIPF_SHIFT = 2.7  # Mandelbrot's: the most frequent words are less frequent than 1/rank
_PHRASE_EXPONENT = 0.7
_FUNCTION_WORD_BOOST = 1.8  # a phrase never ends in one, so they stand the more often before
_IDENTIFIERS, _CODE_HEADS, _CODE_TAILS = 2_500, 9_000, 5_000
_INLINE_CODE, _LINKS, _QUOTED, _NUMBERS = 2_000, 1_500, 1_000, 2_500


def _listed(words: str) -> list[str]:
    return words.split()


_FUNCTION_WORDS = _listed("""
the to a i is of and in it that this for you on with not have be can as but if my or how from do an are what when
there use so which by at am all would any just only me was has no then get like one your way will using want some
does don't don’t it's i'm can't doesn't where why we need into also other because each been out about same more
should two could them after its work first make these
""")
_ONSETS = _listed("b c d f g h j k l m n p r s t v w z br ch cl cr dr fl gr pl pr qu sc sh sp st str th tr")
_NUCLEI = _listed("a e i o u a e i o ai ea ou io")
_CODAS = ["", "", "", "n", "r", "s", "t", "l", "m", "nd", "ck", "x"]
_CODE_WORDS = _listed("""
add all app array async base buffer build byte cache call check child class client code column config content
context count create current data date default delete dict element entry error event field file filter find first
format get group handle header height id image index info init input item iterator job key label last length level
line link list load local lock log main make map match max message method min mode model module name new next node
number object offset open option output page parent parse path point pool position process query queue read record
remove render request reset response result root route row run save scope score search select send server session
set size sort source stack start state status stop store stream string style sum table tag target task temp test
text thread time token total tree type unit update url user value view width window worker write
""")
_HEADS = (
    "{a} = ", "    {a} = ", "var {a} = ", "    int {a} = ", "    return ", "        return ", "    {a}.{b} = ",
    "if ({a} &lt; {b}) return ", "    if ({a} == null) {b} = ", "for {a} in ", "    for (int i = 0; i &lt; {a}; i++) ",
    "print({a}, ", "    console.log({a}.{b}, ", "self.{a} = ", "        self.{a}.{b} = ", "    public {A} {a} = ",
    "const {a} = await ", "&lt;div id=\"{a}\"&gt;", "    &lt;{a} name=\"{b}\"&gt;", "SELECT {a}, {b} FROM ",
    "    WHERE {a} &gt; {n} AND {b} = ", "$ {a} --{b}={n} ", "    private final {A}&lt;{B}&gt; {a} = ",
    "# {a} of the {b}: ", "    // TODO: {a} ", "import {a} from ", "let {a}: {B} = ", "    {a} := ",
    "assert {a}[{n}] == ", "    at com.{a}.{b}.", "[{n}] {A}Error: ", "    std::vector&lt;{A}&gt; {b} = ",
    "    {a} += ", "\t{a} &amp;&amp; ",
)  # fmt: skip
_TAILS = (
    "{a};", "{a}({b});", "{a}.{b}();", "new {A}({b});", "{a}[{n}];", "{n};", "null;", "{a}", "{a}({b}, {n})", "{a}.{b}",
    "\"{a} {b}\"", "'{a}'", "{a} + {b};", "{a}.{b}({n}).{c}();", "[{n}, {n}]", "{a}_{b}", "{a} or {b}", "{A}.{B}({c})",
    "{a} if {b} else {n}", "lambda {a}: {b}", "{a}.{b}:{n}", "({a}) =&gt; {b};",
)  # fmt: skip
_ENDS = ((". ", 12), ("? ", 2), ("! ", 1), (": ", 1))  # of a sentence within a paragraph; 16 in all
_OPENINGS = {TEXT: "<p>", CODE: "<pre><code>", LIST: "<ul>\n<li>", NOTHING: ""}
_CLOSINGS = {TEXT: ".</p>\n", CODE: "\n</code></pre>\n", LIST: "</li>\n</ul>\n"}


@dataclass(frozen=True)
class Vocabulary:
    """Pieces, and the laws by which they fall: a law holds the pieces' numbers, each as often as it is probable.

    Phrase p in wording w is piece `p * WORDINGS + w`; written with a capital it is `capitals` further on.
    """

    pieces: np.ndarray  # bytes objects, escaped
    tokens: np.ndarray  # int64: how many tokens each piece brings to the text
    capitals: int
    single_words: np.ndarray  # phrases of one word
    phrase_law: np.ndarray  # of phrases, 2**LAW_BITS
    topic_law: np.ndarray  # of places within a topic's phrases, 2**TOPIC_LAW_BITS
    topic_starts: np.ndarray  # the first phrase of each topic
    separator_law: np.ndarray  # 2**SEPARATOR_LAW_BITS
    title_separator_law: np.ndarray  # 16
    title_ends: np.ndarray  # 4
    sentence_ends: np.ndarray  # 16
    list_break: int
    breaks: np.ndarray  # from one kind of block to the next: shape (3, 4)
    space: int
    code_head_law: np.ndarray  # 2**CODE_LAW_BITS
    code_tail_law: np.ndarray
    tags: list[bytes]  # the values of Tags, TAG_ROWS for each topic


@functools.lru_cache(maxsize=1)  # a second of work, for each of the small archives of tests
def build_vocabulary(seed: int) -> Vocabulary:
    """The vocabulary of one seed: 120,000 words, 160,000 phrases, almost a million pieces."""
    rng = np.random.default_rng([seed, 0])
    words = _words(rng, _CONCEPTS * WORDINGS + len(_FUNCTION_WORDS))
    phrases, lengths = _phrases(rng, words)
    pool = _Pool(phrases)
    capitals = pool.add(piece[:1].upper() + piece[1:] for piece in phrases)[0]
    space = pool.add([b" "])
    separators = {
        0.83: space,
        0.07: pool.add([b", "]),
        0.006: pool.add(map(_escaped, (" – ", " &amp; ", "… ", "; "))),
        0.034: pool.add(_escaped(f" <code>{html.escape(name)}</code> ") for name in _inline_code(rng)),
        0.008: pool.add(_links(rng, phrases)),
        0.012: (quoted := pool.add(_escaped(f' "{word}" ') for word in words[:_QUOTED])),
        0.04: pool.add(_numbers(rng)),
    }
    return Vocabulary(
        capitals=capitals,
        single_words=np.flatnonzero(lengths == 1),
        phrase_law=_law(_zipf(PHRASES, _PHRASE_EXPONENT), LAW_BITS),
        topic_law=_law(_zipf(TOPIC_PHRASES, _PHRASE_EXPONENT), TOPIC_LAW_BITS),
        topic_starts=rng.integers(0, PHRASES, TOPICS),
        separator_law=_separator_law(separators),
        title_separator_law=np.array([*[space[0]] * 15, quoted[0]]),
        title_ends=np.array(pool.add([b"?", b"", b"?", b""])),
        sentence_ends=np.repeat(pool.add(_escaped(end) for end, _ in _ENDS), [times for _, times in _ENDS]),
        list_break=pool.add([_escaped("</li>\n<li>")])[0],
        breaks=np.array(pool.add(_breaks())).reshape(3, 4),
        space=space[0],
        code_head_law=_law_of(pool.add(_code(rng, _HEADS, _CODE_HEADS, "")), CODE_LAW_BITS),
        code_tail_law=_law_of(pool.add(_code(rng, _TAILS, _CODE_TAILS, "\n")), CODE_LAW_BITS),
        tags=_tags(rng, words),
        pieces=pool.as_array(),
        tokens=_token_counts(pool.pieces, np.tile(np.repeat(lengths, WORDINGS), 2), separators.values()),
    )


class _Pool:
    """Pieces by number."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.pieces = list(pieces)

    def add(self, pieces: Iterable[bytes]) -> range:
        start = len(self.pieces)
        self.pieces.extend(pieces)
        return range(start, len(self.pieces))

    def as_array(self) -> np.ndarray:
        array = np.empty(len(self.pieces), object)
        array[:] = self.pieces
        return array


def _escaped(text: str) -> bytes:
    """As an attribute's value stands in a dump."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    return escaped.replace("\n", "&#xA;").replace("\t", "    ").encode()


def _zipf(size: int, exponent: float = 1.0) -> np.ndarray:
    weights = (np.arange(1, size + 1) + _ZIPF_SHIFT) ** -exponent
    return weights / weights.sum()


def _law(probabilities: np.ndarray, bits: int) -> np.ndarray:
    """A table of 2**bits numbers in which each stands as often as it is probable: one look-up is one draw."""
    middles = (np.arange(1 << bits) + 0.5) / (1 << bits)
    return np.minimum(np.searchsorted(np.cumsum(probabilities), middles), len(probabilities) - 1).astype(np.int32)


def _law_of(pieces: range, bits: int) -> np.ndarray:
    return _law(_zipf(len(pieces)), bits) + pieces[0]


def _separator_law(separators: dict[float, range]) -> np.ndarray:
    numbers = np.concatenate([np.array(pieces) for pieces in separators.values()])
    shares = np.concatenate([np.full(len(pieces), share / len(pieces)) for share, pieces in separators.items()])
    return numbers[_law(shares / shares.sum(), SEPARATOR_LAW_BITS)]


def _words(rng: np.random.Generator, count: int) -> list[str]:
    """So many different words, the shortest first, since frequent words are short."""
    syllables = ["".join(parts) for parts in itertools.product(_ONSETS, _NUCLEI, _CODAS)]
    words = dict.fromkeys(syllables[index] for index in rng.permutation(len(syllables))[: count // 80])
    for taken in (count // 4, count):
        while len(words) < taken:
            parts = 2 if taken < count else 3
            chosen = rng.integers(0, len(syllables), (parts, taken))
            columns = [[syllables[index] for index in row] for row in chosen.tolist()]
            words.update(dict.fromkeys(map("".join, zip(*columns, strict=True))))
            words = dict.fromkeys(itertools.islice(words, taken))
    return [word for word in words if word not in _FUNCTION_WORDS] + ["café", "naïve", "größe"]


def _phrases(rng: np.random.Generator, words: list[str]) -> tuple[list[bytes], np.ndarray]:
    """The phrases, in each wording, and how many words each has. The last word of a phrase is a concept."""
    functions = len(_FUNCTION_WORDS)
    law = _zipf(functions + _CONCEPTS)
    law[:functions] *= _FUNCTION_WORD_BOOST
    law /= law.sum()
    lengths = rng.choice(list(_PHRASE_LENGTHS), PHRASES, p=list(_PHRASE_LENGTHS.values()))
    ends = np.cumsum(lengths)
    meaning = np.searchsorted(np.cumsum(law), rng.random(ends[-1]))
    meaning[ends - 1] = functions + np.searchsorted(np.cumsum(_zipf(_CONCEPTS)), rng.random(PHRASES))
    function_law = law[:functions] / law[:functions].sum()
    every_word = np.array([word.encode() for word in (*_FUNCTION_WORDS, *words)], object)
    wordings = []
    for wording in range(WORDINGS):
        concept = np.minimum(meaning - functions, _CONCEPTS - 1)
        function = np.searchsorted(np.cumsum(function_law)[:-1], rng.random(len(meaning)))
        spoken = np.where(meaning < functions, function, functions + concept * WORDINGS + wording)
        texts = every_word[spoken].tolist()
        wordings.append([b" ".join(texts[end - length : end]) for end, length in zip(ends, lengths, strict=True)])
    return [piece for row in zip(*wordings, strict=True) for piece in row], lengths


def _identifiers(rng: np.random.Generator) -> list[str]:
    parts = rng.integers(0, len(_CODE_WORDS), (_IDENTIFIERS, 2)).tolist()
    return [_CODE_WORDS[a] + (_CODE_WORDS[b].title() if index % 3 else "") for index, (a, b) in enumerate(parts)]


def _code(rng: np.random.Generator, templates: Sequence[str], count: int, end: str) -> list[bytes]:
    """Halves of lines of code, from templates with identifiers."""
    names = _identifiers(rng)
    lines = []
    for template, a, b, c, n in rng.integers(0, 1 << 30, (count, 5)).tolist():
        first, second, third = (names[int((value / 2**30) ** 3 * len(names))] for value in (a, b, c))
        line = templates[template % len(templates)].format(
            a=first, b=second, c=third, A=first[:1].upper() + first[1:], B=second[:1].upper() + second[1:], n=n % 100
        )
        lines.append(_escaped(line + end))
    return lines


def _inline_code(rng: np.random.Generator) -> list[str]:
    names = _identifiers(rng)
    shapes = ("{}", "{}()", "{}.{}", "&{}", "<{}>", "{} = {}")
    picks = rng.integers(0, len(names), (_INLINE_CODE, 2)).tolist()
    return [shapes[index % len(shapes)].format(names[a], names[b]) for index, (a, b) in enumerate(picks)]


def _links(rng: np.random.Generator, phrases: list[bytes]) -> list[bytes]:
    links = []
    for page, label, host in rng.integers(0, len(phrases), (_LINKS, 3)).tolist():
        address = f"https://docs{host % 40}.example.org/pages/{page}/{phrases[label].decode().replace(' ', '-')}"
        text = phrases[label].decode()
        links.append(_escaped(f' <a href="{address}" rel="nofollow noreferrer">{text}</a> '))
    return links


def _numbers(rng: np.random.Generator) -> list[bytes]:
    numbers = rng.integers(0, 10_000, _NUMBERS).tolist()
    texts = [f"{number % 20}.{number % 13}" if number % 4 == 0 else str(number) for number in numbers]
    return [f" {text} ".encode() for text in texts]


def _breaks() -> list[bytes]:
    return [_escaped(_CLOSINGS[kind] + _OPENINGS[after]) for kind in (TEXT, CODE, LIST) for after in _OPENINGS]


def _tags(rng: np.random.Generator, words: list[str]) -> list[bytes]:
    """Each topic has a tag that all its questions bear, and others that come and go."""
    own = rng.permutation(len(words) // 10)[:TOPICS].tolist()
    rows = []
    for topic, others in enumerate(rng.integers(0, TOPICS, (TOPICS, 6)).tolist()):
        names = list(dict.fromkeys(words[own[place]] for place in (topic, *others)))
        for row in range(TAG_ROWS):
            chosen = [names[0], *(name for bit, name in enumerate(names[1:4]) if row >> bit & 1)]
            rows.append(_escaped("".join(f"<{name}>" for name in chosen)))
    return rows


def _token_counts(pieces: list[bytes], of_phrases: np.ndarray, separators: Iterable[range]) -> np.ndarray:
    """Tokens of each piece; those of separators are what stands outside of tags and code, or a link's one."""
    counts = np.zeros(len(pieces), np.int64)
    counts[: len(of_phrases)] = of_phrases
    for number in itertools.chain.from_iterable(separators):
        counts[number] = b"&lt;code" not in pieces[number] and any(chr(byte).isalnum() for byte in pieces[number][1:2])
    return counts
