"""The systems of the experiments by their names: each is made from a data set and learns from its training part."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from dupq.settings.config import Settings
from dupq.training.pairs import Pairs
from dupq.training.word_vectors import WordVectors
from dupq_papers.data.examples import Experiment
from dupq_papers.experiments.samples import evenly, some_queries
from dupq_papers.settings import PaperWordVectors
from dupq_papers.systems import mnet, shingles, simbow, svm, tlm, tuning, vectors, wekos
from dupq_papers.systems.bm25 import BM25
from dupq_papers.systems.bm25 import GRID as BM25_GRID
from dupq_papers.systems.collection import Collection, Examples
from dupq_papers.systems.dfr import DFR
from dupq_papers.systems.dfr import GRID as DFR_GRID
from dupq_papers.systems.ib import GRID as IB_GRID
from dupq_papers.systems.ib import IB
from dupq_papers.systems.lm_dirichlet import GRID as LM_DIRICHLET_GRID
from dupq_papers.systems.lm_dirichlet import LMDirichlet
from dupq_papers.systems.lm_jelinek_mercer import GRID as LM_JELINEK_MERCER_GRID
from dupq_papers.systems.lm_jelinek_mercer import LMJelinekMercer
from dupq_papers.systems.term_counts import term_counts
from dupq_papers.systems.tfidf import GRID as TFIDF_GRID
from dupq_papers.systems.tfidf import TFIDF

_BY_TERMS: dict[str, tuple[Callable[..., Any], tuple[Mapping[str, Any], ...]]] = {
    "tfidf": (TFIDF, TFIDF_GRID),
    "bm25": (BM25, BM25_GRID),
    "ib": (IB, IB_GRID),
    "dfr": (DFR, DFR_GRID),
    "lm dirichlet": (LMDirichlet, LM_DIRICHLET_GRID),
    "lm jelinek-mercer": (LMJelinekMercer, LM_JELINEK_MERCER_GRID),
}
_SHINGLES = "shingles "
_SVM = {"svm": False, "svm and shingles": True}  # whether it has the shingles' coefficients
_SVM_PAIRS = 6_000  # learned from at most: memory grows with their square, to 3 GB here
_CUT = 100  # of the MAP that is tuned by
_TUNING_QUERIES = 200
_CLUSTERS = ({"clusters": 1}, {"clusters": 4}, {"clusters": 16})


@dataclass(frozen=True)
class Fitted:
    """A system that has learned, its own threshold if it has one, what was tuned, and its learning curve."""

    system: Any  # a Ranker, or for pairs what has its `score` alone
    training_pairs: int = 0  # of both labels, that it has learned from
    threshold: float | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    curve: tuple[Mapping[str, float], ...] = ()


class Material(NamedTuple):
    """What a system is made from."""

    collection: Collection
    settings: Settings
    parts: Experiment
    ranks: bool  # whether it is to rank, rather than to tell pairs apart
    vectors: Callable[[], WordVectors]  # of the words of the collection, by `settings`


def fitted(name: str, given: Material) -> Fitted:
    """The system of that name, one of NAMES."""
    if name in _SVM:
        examples = _fewer(given.parts.examples)
        machine = svm.Svm(given.collection, examples, shingles=_SVM[name])
        chosen = {"C": machine.chosen.cost, "gamma": machine.chosen.gamma}
        return Fitted(machine, len(examples.training.labels), threshold=0.0, parameters=chosen)
    if name.startswith(_SHINGLES):  # its threshold is learned, see measuring.py
        system = shingles.ShingleJaccard(given.collection, size=int(name.removeprefix(_SHINGLES)))
        return Fitted(system, len(given.parts.examples.training.labels))
    if name in _BY_TERMS:
        make, grid = _BY_TERMS[name]
        counts = term_counts(given.collection)
        return _tuned(((one, make(counts, **one)) for one in grid), given)
    return _MAKERS[name](given)


def _fewer(examples: Examples) -> Examples:
    """The same with at most _SVM_PAIRS training pairs, as many of each label as there are."""
    left, right, labels = examples.training
    kept = [evenly(np.flatnonzero(labels == label), _SVM_PAIRS // 2) for label in (1, 0)]
    rows = np.sort(np.concatenate(kept))
    return replace(examples, training=Pairs(left[rows], right[rows], labels[rows]))


def _tuned(candidates: Iterable[tuple[Mapping[str, float], Any]], given: Material) -> Fitted:
    """The best on the development part: by MAP where it is to rank, else by the accuracy on pairs."""
    examples = given.parts.examples
    if given.ranks and examples.development_queries:
        queries = some_queries(examples.development_queries, _TUNING_QUERIES)
        best = tuning.best_of(candidates, tuning.mean_average_precision(queries, _CUT))
    elif len(examples.development.labels):
        best = tuning.best_of(candidates, tuning.accuracy_at_best_threshold(examples.development))
    else:
        parameters, system = next(iter(candidates))
        return Fitted(system, parameters=parameters)
    return Fitted(best.system, parameters=best.parameters)


def _tlm(given: Material) -> Fitted:
    counts, training = term_counts(given.collection), given.parts.examples.training
    table = tlm.translations(tlm.parallel_texts(given.collection, counts, training))
    translated = tlm.translated(counts, table)
    found = _tuned(((one, tlm.TLM(counts, translated, **one)) for one in tlm.GRID), given)
    return replace(found, training_pairs=int(np.sum(training.labels > 0.5)))


def _m_net(given: Material) -> Fitted:
    settings = given.settings
    words = PaperWordVectors.parse(dict(settings.word_vectors))
    found = mnet.tagged_vectors(given.collection, words, settings.training.seed, settings.text)
    return Fitted(mnet.MNet(given.collection, found, reading=settings.text))


def _wekos(given: Material) -> Fitted:
    collection, found = given.collection, vectors.of_words(given.vectors())
    seed, reading = given.settings.training.seed, given.settings.text
    made = ((one, wekos.Wekos(collection, found, seed=seed, reading=reading, **one)) for one in _CLUSTERS)
    return _tuned(made, given)


def _simbow(given: Material) -> Fitted:
    return Fitted(simbow.SimBow(given.collection, vectors.of_words(given.vectors()), reading=given.settings.text))


_MAKERS: dict[str, Callable[[Material], Fitted]] = {
    "tlm": _tlm,
    "m-net": _m_net,
    "wekos": _wekos,
    "simbow": _simbow,
}
NAMES = frozenset((*_BY_TERMS, *(f"{_SHINGLES}{size}" for size in (1, 2, 3, 4)), *_SVM, *_MAKERS))
