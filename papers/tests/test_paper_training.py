"""Training as the papers have it: losses, examples, and that duplicates come together."""

import numpy as np
import pytest
import torch
from encoder_settings import where_read
from oracles.slow_padding import pad

from dupq.encoders.encoding import build
from dupq.errors import SettingError
from dupq.links import split_links
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.training.loop import Examples, epoch_examples, train_epoch
from dupq.training.optimisation import optimizer_for
from dupq.training.pairs import Pairs, Rankings, positives
from dupq_papers.training import LabelledPairs, Rounds, logistic_ranking, squared_error, sum_of_squares

VECTORS = np.random.default_rng(1).normal(size=(30, 8)).astype(np.float32)
SEQUENCES = {key: np.random.default_rng(key).integers(1, 30, 9).astype(np.int32) for key in range(40)}
DUPLICATES = np.array([(2 * i, 2 * i + 1) for i in range(20)])
PAPERS = ["bogdanova-sum", "dos-santos-cnn", "dos-santos-bow-cnn", "othman-lstm", "othman-gru"]
TREES = np.array([(10 * i, 10 * i + j) for i in range(10) for j in range(1, 6)])  # ten stars of six questions


def columns_of(examples: Examples) -> Pairs | Rankings:
    if isinstance(examples, Rankings):
        return examples
    return examples.pairs if isinstance(examples, LabelledPairs) else examples.rankings


def quick(preset: str, *assignments: str, units: int = 6) -> Settings:
    return where_read(config.load(preset, assignments), units=units, dropout=0.0)


def test_losses_are_their_equations() -> None:
    scores, labels = torch.tensor([0.9, 0.4]), torch.tensor([1.0, 0.0])
    assert float(squared_error(scores, labels)) == pytest.approx(0.5 * (0.1**2 + 0.4**2))
    assert float(sum_of_squares(scores, labels)) == pytest.approx(0.1**2 + 0.4**2)
    found = logistic_ranking(torch.tensor([0.9, 0.1]), torch.tensor([0.4, 0.5]), 10.0)
    assert float(found) == pytest.approx(np.log(1 + np.exp(-10 * 0.5)) + np.log(1 + np.exp(10 * 0.4)))
    assert float(logistic_ranking(torch.tensor([-1.0]), torch.tensor([1.0]), 1e4)) == pytest.approx(2e4)


@pytest.mark.parametrize("preset", PAPERS)
def test_several_workers_take_the_steps_of_one(preset: str) -> None:
    """The gradients of three workers, summed, against those of one."""
    chosen = quick(preset, "training.batch_size=7", "training.negatives=2", "training.gradient_clipping=0")
    split = split_links(DUPLICATES, chosen.training)
    examples = epoch_examples(DUPLICATES[:7], np.arange(40), split, chosen.training, 1)
    columns = columns_of(examples)
    first = type(columns)(*(column[:7] for column in columns))
    examples = LabelledPairs(first, examples.is_mean) if isinstance(first, Pairs) else Rounds(first, 10.0, (0,))

    def gradients(rank: int, workers: int) -> list[torch.Tensor]:
        network = build(chosen.encoder, VECTORS, seed=1)
        still = torch.optim.SGD(network.parameters(), lr=0.0)
        train_epoch(network, still, SEQUENCES, examples, chosen.training, (rank, workers))
        found = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        return [gradient.to_dense() if gradient.is_sparse else gradient for gradient in found]

    whole = gradients(0, 1)
    shares = [gradients(rank, 3) for rank in range(3)]
    assert whole
    # sums of at most 7 pairs * 4 texts * 9 words in another order: 252 roundings of 2^-24, with gamma = 10 before them
    allowed = 10 * 252 * 2.0**-24 * max(float(gradient.abs().max()) for gradient in whole)
    for index, gradient in enumerate(whole):
        assert float((sum(share[index] for share in shares) - gradient).abs().max()) <= allowed


def half_shared() -> dict[int, np.ndarray]:
    """Texts of eight words; 2 i and 2 i + 1 share most of them."""
    generator = np.random.default_rng(5)
    sequences = {}
    for pair in range(20):
        text = generator.integers(2, 100, 8).astype(np.int32)
        other = text.copy()
        other[generator.integers(0, 8, 3)] = generator.integers(2, 100, 3)
        sequences[2 * pair], sequences[2 * pair + 1] = text, other
    return sequences


@pytest.mark.parametrize("preset", PAPERS)
def test_each_paper_brings_duplicates_together(preset: str) -> None:
    chosen, sequences = quick(preset, "training.batch_size=4", units=20), half_shared()
    split = split_links(DUPLICATES, chosen.training)
    vectors = np.random.default_rng(1).normal(size=(100, 20)).astype(np.float32) * 0.3
    network = build(chosen.encoder, vectors, seed=1)
    network.prepare(list(sequences.values()), [])
    rate = {"sgd": 0.05, "adadelta": 1.0, "adam": 0.01}[chosen.training.optimizer]
    training = chosen.training.changed(learning_rate=rate, negatives_drawn="each-epoch")
    optimizer = optimizer_for(network, training)
    losses = []
    for epoch in range(25):
        examples = epoch_examples(DUPLICATES, np.arange(40), split, training, epoch)
        losses.append(train_epoch(network, optimizer, sequences, examples, training).mean)
    assert np.mean(losses[-3:]) < losses[0] * 0.8


def test_the_stranger_that_scores_highest_is_the_one_that_is_used() -> None:
    chosen = quick("dos-santos-bow-cnn").training
    split = split_links(DUPLICATES, chosen)
    network = build(quick("dos-santos-bow-cnn").encoder, VECTORS, seed=1).eval()
    examples = columns_of(epoch_examples(DUPLICATES, np.arange(40), split, chosen.changed(anchors="together"), 1))
    assert isinstance(examples, Rankings)
    assert examples.negatives.shape == (20, 20)
    assert (examples.negatives // 2 != examples.left[:, None] // 2).all()

    def score(left: int, right: int) -> float:
        found = network(*pad([SEQUENCES[left], SEQUENCES[right]]))
        return network.score(found.rows(0, 1), found.rows(1, 2)).item()

    three = Rankings(*(column[:3] for column in examples))
    still = torch.optim.SGD(network.parameters(), lr=0.0)
    for anchors in ("together", "apart"):
        expected = 0.0
        for left, right, negatives, _ in zip(*(column.tolist() for column in three), strict=True):
            for anchor in (left, right) if anchors == "together" else (left,):
                hardest = max(score(anchor, negative) for negative in negatives)
                expected += np.log1p(np.exp(-10 * (score(left, right) - hardest)))
        rounds = Rounds(three, 10.0, (0, 1) if anchors == "together" else (0,))
        losses = train_epoch(network, still, SEQUENCES, rounds, chosen, rates=(0.0, 0.0))
        assert losses.mean == pytest.approx(expected / 3, rel=1e-4)


def test_apart_each_pair_has_a_round_from_either_question_with_the_same_negatives() -> None:
    chosen = quick("dos-santos-bow-cnn").training
    split = split_links(DUPLICATES, chosen)
    together, apart = (
        columns_of(epoch_examples(DUPLICATES, np.arange(40), split, chosen.changed(anchors=anchors), 1))
        for anchors in ("together", "apart")
    )
    assert isinstance(together, Rankings)
    assert isinstance(apart, Rankings)
    expected = {
        tuple(sides): (negatives.tolist(), int(own))
        for left, right, negatives, own in zip(*together, strict=True)
        for sides in ((left, right), (right, left))
    }
    found = {(left, right): (negatives.tolist(), int(own)) for left, right, negatives, own in zip(*apart, strict=True)}
    assert len(apart.left) == 2 * len(together.left)
    assert found == expected
    assert chosen.anchors == "apart"


@pytest.mark.parametrize("loss", ["squared_error", "logistic_ranking", "softmax"])
def test_no_negative_of_any_kind_is_a_known_duplicate(loss: str) -> None:
    training = config.load("bogdanova-max", [f"training.loss={loss}", "training.negatives=3"]).training
    split = split_links(TREES, training)
    used = positives(TREES, split, training).pairs
    mined = np.stack([(used[:, 0] + 10) % 100, (used[:, 0] + 21) % 100], axis=1)
    wrong = np.array([(1, 12), (23, 99)])
    for epoch in range(1, 6):
        examples = columns_of(epoch_examples(used, np.unique(TREES), split, training, epoch, mined, wrong))
        if isinstance(examples, Pairs):
            is_wrong = examples.labels == 0
            assert is_wrong.sum() == len(used) * (3 + 2) + 2
            assert (examples.left // 10 != examples.right // 10)[is_wrong].all()
            assert (examples.left // 10 == examples.right // 10)[~is_wrong].all()
        else:
            assert isinstance(examples, Rankings)
            assert examples.negatives.shape == (len(used), 3 + 2 + 1)
            assert (examples.negatives // 10 != examples.left[:, None] // 10).all()
            has_one = np.isin(examples.left, [1]) | np.isin(examples.right, [1])
            assert (examples.negatives[has_one, 5] == 12).all()


@pytest.mark.parametrize("loss", ["squared_error", "logistic_ranking", "softmax"])
def test_negatives_are_drawn_once_or_each_epoch_and_the_order_is_another_one_each_epoch(loss: str) -> None:
    training = config.load("bogdanova-max", [f"training.loss={loss}", "training.negatives=3"]).training
    split = split_links(TREES, training)
    used = positives(TREES, split, training).pairs
    mined = np.stack([(used[:, 0] + 10) % 100, (used[:, 0] + 21) % 100], axis=1)

    def rows(drawn: str, epoch: int) -> list[list[float]]:
        chosen = training.changed(negatives_drawn=drawn)
        wrong = np.array([(1, 12), (23, 99)])
        examples = columns_of(epoch_examples(used, np.arange(100), split, chosen, epoch, mined, wrong))
        return np.column_stack([*examples]).tolist()  # type: ignore[no-any-return]

    once, anew = ([rows(drawn, epoch) for epoch in (1, 2, 3)] for drawn in ("once", "each-epoch"))
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert once[first] != once[second]
        assert sorted(once[first]) == sorted(once[second])
        assert sorted(anew[first]) != sorted(anew[second])
    assert once[1] == rows("once", 2)  # as a training that goes on has it again
    assert anew[1] == rows("each-epoch", 2)


def test_random_pairs_are_of_two_questions_of_the_pool_that_do_not_duplicate_each_other() -> None:
    training = config.load("bogdanova-sum", ["training.negatives=3"]).training
    split = split_links(TREES, training)
    used, pool = positives(TREES, split, training).pairs, np.setdiff1d(np.arange(100), [0, 10])
    found = columns_of(epoch_examples(used, pool, split, training, 1))
    assert isinstance(found, Pairs)
    negative = found.labels == 0
    assert negative.sum() == 3 * len(used)
    left, right = found.left[negative], found.right[negative]
    assert np.isin(left, pool).all()
    assert np.isin(right, pool).all()
    assert (left != right).all()
    both_known = (split.set_of(left) >= 0) & (split.set_of(right) >= 0)
    assert (split.set_of(left) != split.set_of(right))[both_known].all()
    assert np.isin(left, used).mean() < 0.7  # a half of the pool has duplicates; of linked pairs it would be all


def test_fewer_pairs_are_trained_on_the_same_in_each_epoch() -> None:
    training = config.load("bogdanova-max", ["training.pairs=20", "training.negatives_drawn=each-epoch"]).training
    split = split_links(TREES, training)
    used = positives(TREES, split, training).pairs
    epochs = [columns_of(epoch_examples(used, np.arange(100), split, training, epoch)) for epoch in (1, 2)]
    linked = [sorted(zip(*(side[one.labels == 1].tolist() for side in one[:2]), strict=True)) for one in epochs]
    assert len(linked[0]) == 20
    assert linked[0] == linked[1]


@pytest.mark.parametrize("preset", ["bogdanova-max", "dos-santos-cnn"])  # pairs, and rankings
def test_pairs_of_known_duplicates_alone_are_nothing_to_train_on(preset: str) -> None:
    training = config.load(preset, ["training.negatives=0"]).training
    with pytest.raises(SettingError, match=r"'training\.negatives' is 0; at least 1 expected"):
        epoch_examples(DUPLICATES, np.arange(40), split_links(DUPLICATES, training), training, 1)
    assert epoch_examples(
        DUPLICATES, np.arange(40), split_links(DUPLICATES, training), training, 1, wrong=np.array([(1, 2)])
    )
