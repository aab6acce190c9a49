"""What depends on a text's language: stems, stop words, the letters of Arabic, the endings of Korean words,
the names of numbers and months; how an encoder reads words; and finding out which language titles are in.
"""

import functools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import regex
import Stemmer

from dupq.settings.sections import TextSettings
from dupq.system import papers
from dupq.text.token_arrays import distinct_words, token_texts
from dupq.text.tokens import CODE_PREFIX, LINK_TOKEN, normal_form

_DIACRITICS = regex.compile(r"[\u0610-\u061A\u064B-\u065F\u0670\u06D6-\u06DC\u06DF-\u06E8\u06EA-\u06ED]")
_STRETCHING = "\u0640"  # tatweel
# The letters that are written for one another, as in Larkey, Ballesteros and Connell (SIGIR 2002): every alef without
# hamza or madda, final yeh with dots, teh marbuta as heh; and the Persian keyboard's kaf and yeh as the Arabic ones.
_LETTERS = str.maketrans("أإآٱىةکی", "اااايهكي")


def bare_arabic(word: str) -> str:
    """`word` without vowel signs, other marks over and under letters, and stretching: how dictionaries spell it."""
    return word if word.isascii() else _DIACRITICS.sub("", word).replace(_STRETCHING, "")


def normalised_arabic(word: str) -> str:
    """`bare_arabic` with one form for the letters that writers do not tell apart; what is not Arabic stays as it is."""
    return word if word.isascii() else bare_arabic(word).translate(_LETTERS)


# Korean words without what is written at their ends: particles behind nouns, and the endings of 하다 and 되다.
#
# Spaces stand between phrases ("자전거를", the bicycle as an object), so that a noun has a dozen forms. No
# dictionary tells which syllables are the noun's own; what is stripped is stripped from all forms alike,
# so that they stay one word.

_ENDS = re.compile(
    "(?<=..)(?:"
    "에서는|에서도|에서|에게서|에게|한테|께서|까지|부터|마다|처럼|보다|밖에|조차|이나|이란|이라는|라는|으로는|으로|로|"
    "하고|들|의|에|도|만|과|와|이|가|이다|입니다|인가요|이에요|예요|나요|까요|려면|는데|지만|면서|세요|습니다"
    ")$|(?<=[^ ])[을를은는]$|"
    "(?<=..)(?:하[가-힣]*|할|한(?:다|데|지)?|함|합[가-힣]+|해[가-힣]*|했[가-힣]*|되[가-힣]*|된|될|됩[가-힣]+|돼[가-힣]*|됐[가-힣]*)$"
)
_AFTER_CONSONANT, _AFTER_VOWEL = "을은과이", "를는와가"


def bare_korean(word: str) -> str:
    """The word without its particles and endings; a word of other letters stays as it is."""
    while match := _ENDS.search(word):
        if not _may_follow(match[0], word[match.start() - 1]):
            return word
        word = word[: match.start()]
    return word


def _may_follow(end: str, letter: str) -> bool:
    """Whether a particle that has one form behind consonants and another behind vowels fits the letter before it."""
    if len(end) > 1 or end not in _AFTER_CONSONANT + _AFTER_VOWEL or not "가" <= letter <= "힣":
        return "가" <= letter <= "힣" or letter.isalnum()
    has_consonant = (ord(letter) - ord("가")) % 28 > 0
    return end in (_AFTER_CONSONANT if has_consonant else _AFTER_VOWEL)


# Stop words, by language.
#
# English: the 179 words of NLTK's list, which the papers use; French to Spanish: the lists of Snowball; these, and
# those of Chinese, Korean and Turkish, as bm25s ships them. Arabic, Japanese and Thai: lists of our own of the
# prepositions, conjunctions, pronouns, particles, question words and forms of "to be", since the available lists were
# counted on news and hold words like "agency", or cut words otherwise than ICU does. The latter two are without
# negations.

_ARABIC = """
من في على إلى عن مع حتى منذ خلال بعد قبل عند لدى بين ضمن حول نحو دون بدون غير سوى مثل ضد عبر فوق تحت أمام وراء خلف
و أو أم ثم ف ب ك ل بل لكن لكنّ أن إن أنّ إنّ كأن لأن لأنه لأنها إذا إذ إذن لو لولا لئلا كي لكي حيث بينما عندما حين حينما
كلما ما لا لم لن ليس ليست لست لما لات قد سوف س هل أ يا أيها أيتها ألا إلا أما إما إنما
أنا نحن أنت أنتم أنتما أنتن هو هي هم هما هن إياه إياها إياك
هذا هذه هذان هذين هاتان هاتين هؤلاء ذلك ذاك تلك أولئك هنا هناك هنالك
الذي التي الذين اللذان اللذين اللتان اللتين اللاتي اللواتي اللائي
ماذا ماهو ماهي من مم مما ممن عما عمن بم بما فيم فيما لم لماذا متى أين كيف كيفية كم أي أية أيان أنى
كان كانت كانوا كنت كنا كن يكون تكون يكونون تكونون نكون أكون يكن تكن كونه كونها مازال مازالت لايزال
به بها بهم بك بي بنا له لها لهم لك لي لنا لكم فيه فيها فيهم عليه عليها عليهم عليك إليه إليها إليهم إليك منه منها منهم
منك عنه عنها عنهم عنك معه معها معهم معك لديه لديها لديهم لديك عنده عندها عندهم عندك بينهم بينها
كل بعض جميع كافة كلا كلتا أيضا فقط جدا نفس ذات بأن بأي لأي وهو وهي وهم ومن وما ولا ولم وفي وعلى وإلى وكان وكانت وقد
"""

_JAPANESE = """
は が を に へ と で から まで より の も や か ね よ ば て た だ です ます でし まし ませ う な なら なり なる し す
する さ せ れ られ いる い ある あり あっ おり こと もの ため よう とき 時 場合 について による によって として
この その あの どの これ それ あれ どれ ここ そこ どこ 何 なに なん なぜ いつ だれ 誰 どう どんな どうして どうやって
すれ いい よい 良い ください 下さい でしょう だろう しょう ましょう しまう しまい たい たく たら そして しかし また
でも ので のに けど けれど という って ほう 方 ほうが 私 僕 自分 とても もし まだ もう お ご さん すぎ くれ あげ もらえ
でき できる できます
"""
_THAI = """
ที่ ของ และ ใน เป็น มี ได้ จะ ให้ กับ ว่า การ ความ นี้ นั้น ไป มา แล้ว ก็ หรือ แต่ จาก โดย อยู่ ต้อง ควร คือ อะไร ทำไม
อย่างไร ยังไง ไหม ไหน ที่ไหน เมื่อ เมื่อไร เมื่อไหร่ ใคร เท่าไร เท่าไหร่ กี่ ถ้า หาก เพราะ เพื่อ ด้วย ซึ่ง อีก ยัง เคย
กำลัง
ฉัน ผม ดิฉัน คุณ เขา เธอ เรา พวกเขา มัน ๆ ครับ ค่ะ คะ นะ สิ บ้าง ทุก แต่ละ บาง มาก น้อย เลย แค่ เท่านั้น ขึ้น ลง ออก
เข้า
ช่วย ขอ วิธี วิธีการ ทำ สามารถ ใช้ ตัว อัน ถึง ตาม ต่อ กัน เอง เช่น ระหว่าง เกี่ยวกับ สำหรับ
"""
_OWN = {"japanese": _JAPANESE, "thai": _THAI, "other": ""}


@functools.cache
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language as tokens; the Arabic ones in normalised spelling."""
    if language == "arabic":
        return frozenset(normalised_arabic(word) for word in _ARABIC.split())
    if language in _OWN:
        return frozenset(_OWN[language].split())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tqdm, which bm25s imports, in a notebook without widgets
        from bm25s import stopwords

    name = "EN_PLUS" if language in ("auto", "english") else language.upper()
    return frozenset(map(normal_form, getattr(stopwords, f"STOPWORDS_{name}")))


def is_stop_word(token: str, language: str) -> bool:
    """Whether a token of a text is a stop word, in Arabic whatever its spelling."""
    return (normalised_arabic(token) if language == "arabic" else token) in stop_words(language)


# Stems, by the Snowball stemmers.

_WITHOUT_STEMS = ("chinese", "japanese", "thai", "other")


def stems(language: str) -> Callable[[str], str]:
    """The function from a word to its stem; to the word itself in a language that has none here."""
    if language in _WITHOUT_STEMS:
        return str
    if language == "korean":
        return bare_korean
    name = "english" if language == "auto" else language
    stemmer = Stemmer.Stemmer(name, 0)  # words come once each: its cache takes five times as long as stemming
    return lambda word: stemmer.stemWord(word) or word


# The words of stored texts in the form that an encoder reads, as TextSettings say.
#
# The stored texts stay as the tokeniser made them, because the lexical filter and the baselines read them too. This
# comes between them and the vocabulary wherever an encoder reads a text; its settings are saved with it. Tokens of
# code and links never change.


class Normaliser:
    """From a plain text to a stored one, and to the words that an encoder knows. Same text and settings, same words."""

    def __init__(self, settings: TextSettings) -> None:
        """Read as `settings` say; `normaliser_of` gives the papers' own where they have settings of theirs."""
        self._form = stems(settings.language) if settings.word_form == "stems" else str

    def stored(self, texts: pa.Array) -> pa.Array:
        """Return the tokens of plain texts, joined by single spaces (large_string)."""
        return token_texts(texts)

    def learned(self, texts: pa.Array) -> pa.Array:
        """Return of stored texts what word vectors learn from, not yet in its form: all of it."""
        return texts

    def read(self, texts: pa.Array) -> pa.Array:
        """Return of stored texts what an encoder reads, not yet in its form: all of it."""
        return texts

    def each_form(self, words: list[str]) -> list[str | None]:
        """Return the form of each word; None for a word that its form leaves nothing of."""
        return [word if _is_mark(word) else (word and self._form(word)) or None for word in words]

    def all_words(self, text: str) -> list[str]:
        """Return the words that word vectors learn from a stored text, in their forms."""
        return self._in_form(self.learned(pa.array([text], pa.large_string())))

    def words(self, text: str) -> list[str]:
        """Return the words that an encoder reads of a stored text, in their forms."""
        return self._in_form(self.read(pa.array([text], pa.large_string())))

    def _in_form(self, one: pa.Array) -> list[str]:
        text = one[0].as_py()
        return [form for form in self.each_form(text.split(" ")) if form] if text else []


def _is_mark(token: str) -> bool:
    return token == LINK_TOKEN or token.startswith(CODE_PREFIX)


def normaliser_of(settings: TextSettings) -> Normaliser:
    """Return what reads texts by these settings: the papers' own normaliser where they have settings of theirs."""
    if type(settings) is TextSettings:
        return Normaliser(settings)
    [reading] = papers("reading")
    found: Normaliser = reading.PaperNormaliser(settings)
    return found


_DIGIT = re.compile(r"[0-9]")
_MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
# what else is a number in a title: "one" and "second" are more often no numbers, "may" and "march" are verbs too
_NUMBERS = {
    **{month: f"month {number}" for number, month in enumerate(_MONTHS, 1) if month not in ("may", "march")},
    **{month[:3]: f"month {number}" for number, month in enumerate(_MONTHS, 1) if month not in ("may", "march")},
    "sept": "month 9",
    **{word: str(number) for number, word in enumerate(_WORDS) if number != 1},
    **{word: str(number) for number, word in enumerate(_ORDINALS, 1) if number != 2},
    **{name: str(number) for number, name in ((2, "ii"), (3, "iii"), (4, "iv"))},
}


def numbers_in(words: str) -> set[str]:
    """The numbers of a title's tokens: words with a digit, number words, months."""
    found = words.split(" ")
    return {word for word in found if _DIGIT.search(word)} | {_NUMBERS[word] for word in found if word in _NUMBERS}


# Finding out which language titles are in, by the scripts of their words and by stop words.
#
# One language is taken for all: the one that most words are in. Its stems and stop words leave words of other scripts
# as they are, and the words of scripts without spaces are cut in any case (tokens.py). "other" has no stems and stop
# words.

_SCRIPTS = {  # of a word's first letter
    "kana": r"[\p{Hiragana}\p{Katakana}]",
    "han": r"\p{Han}",
    "korean": r"\p{Hangul}",
    "thai": r"\p{Thai}",
    "arabic": r"\p{Arabic}",
    "cyrillic": r"\p{Cyrillic}",
    "latin": r"\p{Latin}",
    "other": r"\p{L}",
}
_LETTER = regex.compile("|".join(f"(?P<{name}>{letter})" for name, letter in _SCRIPTS.items()))
_TOLD_BY_STOP_WORDS = {
    "arabic": ("arabic",),
    "cyrillic": ("russian",),
    "latin": ("english", "french", "german", "portuguese", "spanish", "italian", "turkish"),
}
_LEAST_KANA = 0.1  # of the words of a Japanese archive; a Chinese one quotes some
_LEAST_SHARE, _FEWEST = 0.1, 5  # of stop words among the words of titles: Ukrainian shares some with Russian


def language_of(titles: pa.StringArray) -> str:
    """The language of most words of `titles`; English where nothing tells."""
    numbers, _, distinct = distinct_words(token_texts(titles))
    words = distinct.to_pylist()
    scripts: dict[str, Counter[str]] = {name: Counter() for name in _SCRIPTS}
    for word, count in zip(words, np.bincount(numbers, minlength=len(words)).tolist(), strict=True):
        if (letter := _LETTER.match(word)) is not None:
            scripts[str(letter.lastgroup)][word] += count
    sums = {name: counts.total() for name, counts in scripts.items()}
    sums["han"] += sums.pop("kana")
    most = max(sums, key=lambda name: sums[name])
    if not sums[most]:
        return "english"
    if most == "han":
        return "japanese" if scripts["kana"].total() > _LEAST_KANA * sums["han"] else "chinese"
    return _by_stop_words(scripts[most], _TOLD_BY_STOP_WORDS[most]) if most in _TOLD_BY_STOP_WORDS else most


def _by_stop_words(words: Counter[str], languages: Sequence[str]) -> str:
    """The language whose stop words are most frequent, if they are frequent enough; of Latin words else English."""
    known = {name: sum(count for word, count in words.items() if is_stop_word(word, name)) for name in languages}
    best = max(languages, key=lambda name: known[name])
    if known[best] < max(_FEWEST, _LEAST_SHARE * words.total()):
        return "english" if "english" in languages else "other"
    return best
