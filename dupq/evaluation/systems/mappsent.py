"""MappSent (Hazem, Boussaha, Hernandez, RANLP 2017), section 3: MappSent, MappSent-, and both less components.

The encoder is dupq/encoders/networks/mappsent.py. R is orthogonal and both questions of a pair are mapped by it
(section 3, step 4, and section 6), so **R changes no cosine**: (x R) . (y R) = x . y, lengths stay, and the
principal components turn with the questions. What makes MappSent differ from MappSent- is that vectors are brought
to length 1 and centred before R, "unit normalization and mean centering" in section 6.

`fitted_on`: "we first compute PCA on the training dataset", and the mean with it.
"""

from dupq.encoders.networks.mappsent import MappSent as Network
from dupq.evaluation.systems.collection import Collection, Examples
from dupq.evaluation.systems.cosine import CosineRanker
from dupq.evaluation.systems.prepared import FittedOn, fitted_embeddings, table_of
from dupq.evaluation.systems.vectors import WordVectors
from dupq.settings.text import Language, TextSettings


def paper_reading(language: Language) -> TextSettings:
    """Section 3, steps 1 and 2: lemmas; no stop words; nouns, verbs and adjectives only, where English can be tagged.

    Word vectors learn from all lemmas.
    """
    kept = "content" if language == "english" else "all"
    return TextSettings(language=language, word_form="lemmas", stop_words="removed", parts_of_speech=kept)


class MappSent(CosineRanker):
    """See above."""

    def __init__(
        self,
        collection: Collection,
        vectors: WordVectors,
        examples: Examples,
        *,
        reading: TextSettings,
        mapped: bool = True,
        removed_components: int = 0,
        fitted_on: FittedOn = "training",
    ) -> None:
        """`mapped` is False for MappSent-, the plain sum; `removed_components` are the paper's 0 to 20.

        `reading` is `paper_reading`, with vectors of the same forms, or another.
        """
        network = Network(table_of(vectors), mapped, removed_components)
        found = fitted_embeddings(network, collection, vectors.words, reading, fitted_on, examples)
        super().__init__(collection.keys, found)
