"""Stop words, by language.

English: the 179 words of NLTK's list, which the papers use; French to Spanish: the lists of Snowball; all as bm25s
ships them. Arabic: a list of our own of the prepositions, conjunctions, pronouns, particles, question words and forms
of "to be", since the available lists were counted on news and hold words like "agency".
"""

import functools
import warnings

from dupq.text import arabic
from dupq.text.tokens import normal_form

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


@functools.cache
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language as tokens; the Arabic ones in normalised spelling."""
    if language == "arabic":
        return frozenset(arabic.normalised(word) for word in _ARABIC.split())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tqdm, which bm25s imports, in a notebook without widgets
        from bm25s import stopwords

    name = "EN_PLUS" if language == "english" else language.upper()
    return frozenset(map(normal_form, getattr(stopwords, f"STOPWORDS_{name}")))


def is_stop_word(token: str, language: str) -> bool:
    """Whether a token of a text is a stop word, in Arabic whatever its spelling."""
    return (arabic.normalised(token) if language == "arabic" else token) in stop_words(language)
