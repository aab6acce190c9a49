"""Korean words without what is written at their ends: particles behind nouns, and the endings of 하다 and 되다.

Spaces stand between phrases ("자전거를", the bicycle as an object), so that a noun has a dozen forms. No dictionary
tells which syllables are the noun's own; what is stripped is stripped from all forms alike, so that they stay one word.
"""

import re

_ENDS = re.compile(
    "(?<=..)(?:"
    "에서는|에서도|에서|에게서|에게|한테|께서|까지|부터|마다|처럼|보다|밖에|조차|이나|이란|이라는|라는|으로는|으로|로|"
    "하고|들|의|에|도|만|과|와|이|가|이다|입니다|인가요|이에요|예요|나요|까요|려면|는데|지만|면서|세요|습니다"
    ")$|(?<=[^ ])[을를은는]$|"
    "(?<=..)(?:하[가-힣]*|할|한(?:다|데|지)?|함|합[가-힣]+|해[가-힣]*|했[가-힣]*|되[가-힣]*|된|될|됩[가-힣]+|돼[가-힣]*|됐[가-힣]*)$"
)
_AFTER_CONSONANT, _AFTER_VOWEL = "을은과이", "를는와가"


def bare(word: str) -> str:
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
