"""The SVM over n-grams of pairs: features counted by hand, and the machine beside scikit-learn's own kernel."""

import numpy as np
import pytest
import slow_systems
from hypothesis import given, settings
from hypothesis import strategies as st
from made_collections import collection_of, random_collection, random_examples, strings, words_of
from oracles.slow_rankings import slow_jaccard
from sklearn.svm import SVC

from dupq.training.pairs import Pairs
from dupq_papers.systems.collection import Examples
from dupq_papers.systems.ngrams import frequent_ngrams, pair_features
from dupq_papers.systems.svm import COSTS, GAMMAS, Svm

ONE_POINT = {"costs": [8.0], "gammas": [0.05]}


def test_the_features_of_three_pairs_are_those_counted_by_hand() -> None:
    texts = strings(["flat bread", "bread rises flat bread", "flat", ""])
    ngrams = frequent_ngrams(texts, np.array([0, 1, 2, 3]), least=2)
    assert ngrams.names == ("flat", "bread", "flat bread")  # 3, 3 and 2 times; all others once
    assert ngrams.totals.tolist() == [3, 10, 1, 0]
    features = pair_features(ngrams, np.array([0, 1, 2]), np.array([1, 2, 3])).toarray()
    in_first, in_second, shares = np.split(features, 3, axis=1)
    assert in_first.tolist() == [[1, 1, 1], [1, 1, 1], [1, 0, 0]]
    assert in_second.tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert shares == pytest.approx(np.array([[2 / 13, 3 / 13, 2 / 13], [2 / 11, 2 / 11, 1 / 11], [1, 0, 0]]))


def test_frequencies_are_of_the_training_texts_alone() -> None:
    texts = strings(["sail", "sail", "bread bread", "bread"])
    assert frequent_ngrams(texts, np.array([0, 2]), least=2).names == ("bread",)


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(1, 4))
def test_the_features_are_those_of_the_slow_twin(seed: int, least: int) -> None:
    collection = random_collection(seed)
    texts, training = words_of(collection), list(range(30))
    ngrams = frequent_ngrams(collection.texts, np.array(training), least)
    random = np.random.default_rng(seed)
    left, right = random.integers(0, len(texts), (2, 15))
    features = pair_features(ngrams, left, right).toarray().reshape(15, 3, -1)
    columns = sorted(range(len(ngrams.names)), key=lambda column: ngrams.names[column].split())
    found = features[:, :, columns].transpose(0, 2, 1).reshape(15, -1)
    pairs = list(zip(left.tolist(), right.tolist(), strict=True))
    assert found == pytest.approx(slow_systems.pair_features(texts, training, least, pairs))


def features_of(collection_texts: list[str], training: list[int], pairs: list[tuple[int, int]], shingles: bool):
    """Dense features of pairs of rows, from the slow twins."""
    features = slow_systems.pair_features([text.split() for text in collection_texts], training, 2, pairs)
    if not shingles:
        return features
    shared = [[slow_jaccard(collection_texts, left, size)[right] for size in (1, 2, 3, 4)] for left, right in pairs]
    return np.concatenate([features, np.array(shared)], axis=1)


@pytest.mark.parametrize("shingles", [False, True])
@pytest.mark.parametrize("both_orders", [False, True])
def test_the_machine_is_that_of_scikit_learn_on_dense_features_of_all_orders(shingles: bool, both_orders: bool) -> None:
    collection = random_collection(3)
    examples = random_examples(collection, 3)
    texts, training = collection.texts.to_pylist(), examples.training
    svm = Svm(collection, examples, shingles=shingles, least=2, both_orders=both_orders, **ONE_POINT)

    pairs = [(left // 10 - 1, right // 10 - 1) for left, right in zip(training.left, training.right, strict=True)]
    learned = [*pairs, *((right, left) for left, right in pairs)] if both_orders else pairs
    labels = np.tile(training.labels > 0, 2 if both_orders else 1)
    seen = sorted({row for pair in pairs for row in pair})
    expected = SVC(C=8.0, gamma=0.05, tol=1e-6).fit(features_of(texts, seen, learned, shingles), labels)
    asked = [(left, right) for left in range(0, 40, 3) for right in range(1, 40, 7)]
    left, right = (np.array(side) * 10 + 10 for side in zip(*asked, strict=True))
    scores = svm.score(left, right)
    assert scores == pytest.approx(expected.decision_function(features_of(texts, seen, asked, shingles)), abs=5e-3)
    if both_orders:
        assert svm.score(right, left) == pytest.approx(scores)


def test_the_grid_is_searched_for_the_accuracy_on_development_pairs() -> None:
    collection = random_collection(4)
    examples = random_examples(collection, 4)
    tuned = examples.development
    costs, gammas = [0.5, 8.0, 128.0], [0.001, 0.03, 1.0]
    accuracies = {}
    for cost in costs:
        for gamma in gammas:
            svm = Svm(collection, examples, shingles=True, least=2, costs=[cost], gammas=[gamma])
            accuracies[cost, gamma] = np.mean((svm.score(tuned.left, tuned.right) > 0) == (tuned.labels > 0))
    chosen = Svm(collection, examples, shingles=True, least=2, costs=costs, gammas=gammas).chosen
    assert len(set(accuracies.values())) > 1
    assert chosen == min((*point, found) for point, found in accuracies.items() if found == max(accuracies.values()))


def test_the_grid_has_the_values_of_the_papers_table_2() -> None:
    assert {2.0, 8.0, 32.0} <= set(COSTS)
    assert [gamma for gamma in GAMMAS if gamma in (2.0**-15, 2.0**-13)] == pytest.approx([3.05e-5, 1.2e-4], rel=0.02)


def test_it_tells_pairs_that_share_words_from_pairs_that_do_not() -> None:
    words = ["bread", "sail", "boat", "flour", "lock", "key"]
    random = np.random.default_rng(1)
    texts = [" ".join([*random.choice(words, 2), f"n{row // 2}"]) for row in range(120)]
    texts = [f"{texts[row // 2 * 2]} again" if row % 2 else text for row, text in enumerate(texts)]  # copies, 2 by 2
    collection = collection_of(texts)
    left = collection.keys[::2]
    right = np.where(np.arange(60) % 4 < 2, left + 10, np.roll(left + 10, 3))
    pairs = Pairs(left, right, (right == left + 10).astype(np.float32))
    parts = [Pairs(*(column[some] for column in pairs)) for some in (slice(0, 40), slice(40, 60))]
    svm = Svm(collection, Examples(*parts, {}), shingles=True)
    assert np.mean((svm.score(parts[1].left, parts[1].right) > svm.threshold) == (parts[1].labels > 0)) == 1.0
