"""Stop words, by language.

English: the 179 words of NLTK's list, which the papers use; French to Spanish: the lists of Snowball; these, and those
of Chinese, Korean and Turkish, as bm25s ships them. Arabic, Japanese and Thai: lists of our own of the prepositions,
conjunctions, pronouns, particles, question words and forms of "to be", since the available lists were counted on news
and hold words like "agency", or cut words otherwise than ICU does. The latter two are without negations.
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
อย่างไร ยังไง ไหม ไหน ที่ไหน เมื่อ เมื่อไร เมื่อไหร่ ใคร เท่าไร เท่าไหร่ กี่ ถ้า หาก เพราะ เพื่อ ด้วย ซึ่ง อีก ยัง เคย กำลัง
ฉัน ผม ดิฉัน คุณ เขา เธอ เรา พวกเขา มัน ๆ ครับ ค่ะ คะ นะ สิ บ้าง ทุก แต่ละ บาง มาก น้อย เลย แค่ เท่านั้น ขึ้น ลง ออก เข้า
ช่วย ขอ วิธี วิธีการ ทำ สามารถ ใช้ ตัว อัน ถึง ตาม ต่อ กัน เอง เช่น ระหว่าง เกี่ยวกับ สำหรับ
"""
_OWN = {"japanese": _JAPANESE, "thai": _THAI, "other": ""}


@functools.cache
def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language as tokens; the Arabic ones in normalised spelling."""
    if language == "arabic":
        return frozenset(arabic.normalised(word) for word in _ARABIC.split())
    if language in _OWN:
        return frozenset(_OWN[language].split())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tqdm, which bm25s imports, in a notebook without widgets
        from bm25s import stopwords

    name = "EN_PLUS" if language in ("auto", "english") else language.upper()
    return frozenset(map(normal_form, getattr(stopwords, f"STOPWORDS_{name}")))


def is_stop_word(token: str, language: str) -> bool:
    """Whether a token of a text is a stop word, in Arabic whatever its spelling."""
    return (arabic.normalised(token) if language == "arabic" else token) in stop_words(language)
