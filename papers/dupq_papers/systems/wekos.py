"""WEKOS: word embeddings, k-means and cosine (Othman, Faiz, Smaïli 2019), as Othman et al. 2021, section 5.6, tell it.

"Transforms words in each question into continuous vectors. The questions are clustered using Kmeans and the similarity
between them was measured using cosine similarity based on their weighted continuous valued vectors"; it "averages the
weighted embeddings", and the weights are TF-IDF. So a question is

    v_q = sum over the words w of q of tf(w, q) ln(N / df(w)) v_w

whose scale no cosine sees. What the paper leaves open, and what is done here:

- What the clusters are for. A query is compared with the questions of its own cluster, which are its candidates; with
  one cluster that is the whole archive. Pairs are scored whatever their clusters are.
- How many clusters: `clusters`, without a default. On what: the v_q brought to length 1, as cosines see them, of all
  questions of the archive. k-means++ with a fixed seed, the best of 3 starts.
- The form of tf and idf: the plain ones above, df counted over the archive. Unknown words count for nothing.
- Reading: section 3.1 removes stop words and stems, for all systems alike; `reading` says it here.
"""

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from dupq.settings.sections import TextSettings
from dupq_papers.systems.collection import Collection
from dupq_papers.systems.cosine import CosineRanker
from dupq_papers.systems.vectors import AS_STORED, WordVectors, bags, tf_idf

_STARTS = 3


class Wekos(CosineRanker):
    """See above."""

    def __init__(
        self,
        collection: Collection,
        vectors: WordVectors,
        *,
        clusters: int,
        seed: int,
        reading: TextSettings = AS_STORED,
    ) -> None:
        """`clusters` of questions; as many as questions with a known word, if those are fewer."""
        _, counts = bags(collection.texts, reading, vectors.words)
        questions = tf_idf(counts) @ vectors.table.astype(np.float64)
        super().__init__(collection.keys, questions)
        self.groups = clusters_of(self.vectors, clusters, seed)


def clusters_of(vectors: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The cluster of each of `vectors` (n, d), -1 of a zero one: int64, (n,).

    With one thread: several would add up centroids in any order.
    """
    groups = np.full(len(vectors), -1)
    is_there = vectors.any(axis=1)
    number = min(clusters, int(is_there.sum()))
    if number:
        with threadpool_limits(1):
            groups[is_there] = KMeans(number, n_init=_STARTS, random_state=seed).fit_predict(vectors[is_there])
    return groups
