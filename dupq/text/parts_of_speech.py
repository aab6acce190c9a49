"""Keeping the nouns, verbs and adjectives of an English text (Hazem et al. 2017, section 3, step 2).

The tagger is Brill's (1992), rules and lexicon as TextBlob ships them inside its package: nothing is fetched. The paper
does not name its own. The tokens are lower case and without punctuation, so names and ends of sentences are not seen;
an unknown word that has no telling ending counts as a noun.
"""

from collections.abc import Sequence

_CONTENT = ("NN", "VB", "JJ")  # the Penn Treebank's nouns, names among them, verbs without modals, and adjectives


def content_words(tokens: Sequence[str]) -> list[bool]:
    """For each token of an English text whether it is a noun, a verb or an adjective."""
    from textblob.en import parser

    return [tag.startswith(_CONTENT) for _, tag in parser.find_tags(list(tokens))]
