"""Smooth inverse frequency (Arora, Liang, Ma 2017) as Hazem et al. 2017 compare with it: Arora and Arora_pca.

    v_q = 1/|q| sum over the words w of q of a / (a + p(w)) v_w,   less its projections on principal components

The encoder is dupq/encoders/networks/sif.py. p(w) and the components are of the texts that it is fitted on: Hazem et
al. "compute PCA on the training dataset" (section 3), and do not say where p(w) comes from.
"""

from dupq.encoders.networks.sif import SIF
from dupq.evaluation.systems.collection import Collection, Examples
from dupq.evaluation.systems.cosine import CosineRanker
from dupq.evaluation.systems.prepared import FittedOn, fitted_embeddings, table_of
from dupq.evaluation.systems.vectors import AS_STORED, WordVectors
from dupq.settings.text import TextSettings


class Sif(CosineRanker):
    """See above."""

    def __init__(
        self,
        collection: Collection,
        vectors: WordVectors,
        examples: Examples,
        *,
        smoothing: float = 1e-3,
        removed_components: int = 1,
        fitted_on: FittedOn = "training",
        reading: TextSettings = AS_STORED,
    ) -> None:
        """`smoothing` is a; `removed_components` is 0 for Arora, 1 for Arora_pca."""
        network = SIF(table_of(vectors), smoothing, removed_components)
        found = fitted_embeddings(network, collection, vectors.words, reading, fitted_on, examples)
        super().__init__(collection.keys, found)
