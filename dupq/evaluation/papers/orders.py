"""What the papers say of the order of systems, to be held against our figures."""

from typing import NamedTuple


class Claim(NamedTuple):
    """The systems of `better` (labels of rows) all have more of a measure than those of `worse`."""

    text: str
    table: str
    measure: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    within: float = 0.0  # how far below they may be: for claims that two are about the same


CLAIMS = (
    Claim(
        "Shingles of one word are best among shingles",
        "bogdanova-2",
        "validation_accuracy",
        ("Shingling (size 1), code removed",),
        tuple(f"Shingling (size {size}), code removed" for size in (2, 3, 4)),
    ),
    Claim(
        "SVM with shingles over SVM",
        "bogdanova-2",
        "validation_accuracy",
        ("SVM-RBF + shingles, code removed",),
        ("SVM-RBF, code removed",),
    ),
    Claim(
        "The CNN over SVM with shingles",
        "bogdanova-3",
        "test_accuracy",
        ("CNN, in-domain vectors",),
        ("SVM-RBF + shingles",),
    ),
    Claim(
        "In-domain vectors over foreign ones",
        "bogdanova-4",
        "validation_accuracy",
        ("CNN, in-domain vectors",),
        ("CNN, vectors of another site (the paper: Wikipedia)",),
    ),
    Claim(
        "The CNN on 4,000 pairs within a point of that on all",
        "bogdanova-5",
        "test_accuracy",
        ("this site, 4,000 pairs; its vectors",),
        ("this site, all pairs; its vectors",),
        within=0.01,
    ),
    Claim(
        "Titles: the CNN over all six baselines",
        "dos-santos-3",
        "accuracy_at_10",
        ("CNN",),
        ("TFIDF", "BM25", "IB", "DFR", "LM-Dirichlet", "LM-Jelinek-Mercer"),
    ),
    Claim(
        "Title and body: BOW-CNN over the CNN and all six baselines",
        "dos-santos-4",
        "accuracy_at_10",
        ("BOW-CNN",),
        ("CNN", "TFIDF", "BM25", "IB", "DFR", "LM-Dirichlet", "LM-Jelinek-Mercer"),
    ),
    Claim(
        "Manhattan over cosine over Euclidean, first step (attentive LSTM)",
        "othman-3",
        "precision_at_5",
        ("ASLSTM, manhattan",),
        ("ASLSTM, cosine",),
    ),
    Claim(
        "Manhattan over cosine over Euclidean, second step (attentive LSTM)",
        "othman-3",
        "precision_at_5",
        ("ASLSTM, cosine",),
        ("ASLSTM, euclidean",),
    ),
    Claim("Attention over none", "othman-2", "map", ("ASLSTM",), ("Siamese LSTM",)),
    Claim("The attentive LSTM over WEKOS over TLM", "othman-2", "map", ("ASLSTM",), ("WEKOS", "TLM")),
    Claim("The LSTM over the CNN", "othman-5", "map", ("Siamese LSTM",), ("Siamese CNN",)),
    Claim("MappSent over SIF", "hazem-1", "map", ("MappSent",), ("Arora",)),
)
