"""Keeping the nouns, verbs and adjectives of an English text (Hazem et al. 2017, section 3, step 2).

The tagger is Brill's (1992), rules and lexicon as TextBlob ships them inside its package: nothing is fetched. The paper
does not name its own. Stored tokens are lower case and without punctuation unless `text.tokens` keeps these, so names
and ends of sentences are not seen; an unknown word that has no telling ending counts as a noun.
"""

from collections.abc import Sequence

from dupq.extras import require
from dupq.text.punctuation import SENTENCE_ENDS

_CONTENT = ("NN", "VB", "JJ")  # the Penn Treebank's nouns, names among them, verbs without modals, and adjectives


def content_words(tokens: Sequence[str]) -> list[bool]:
    """For each token of an English text whether it is a noun, a verb or an adjective."""
    require("textblob", "reading parts of speech")
    from textblob.en import parser

    return [tag.startswith(_CONTENT) for _, tag in parser.find_tags(list(tokens))]


def content_words_of_sentences(tokens: Sequence[str]) -> list[bool]:
    """As `content_words`, of tokens with punctuation: the tagger meets one sentence at a time.

    It looks at where a sentence begins, as a capital there says nothing. Nothing but letters makes a word.
    """
    found: list[bool] = []
    start = 0
    for place, token in enumerate(tokens):
        if token in SENTENCE_ENDS or place == len(tokens) - 1:
            found += content_words(tokens[start : place + 1])
            start = place + 1
    return [
        is_content and any(letter.isalpha() for letter in token)
        for token, is_content in zip(tokens, found, strict=True)
    ]
