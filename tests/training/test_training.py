import random

import numpy as np
import pytest
import torch
from encoder_settings import where_read
from hypothesis import given
from hypothesis import strategies as st
from oracles.slow_padding import pad

from dupq.encoders.encoding import build
from dupq.errors import SettingError
from dupq.links.split import split_links
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.training import TrainingSettings
from dupq.training.loop import epoch_examples, train_epoch
from dupq.training.optimisation import optimizer_for
from dupq.training.pairs import Rankings, with_random_negatives

SETTINGS = TrainingSettings()
LINKS = st.lists(st.tuples(st.integers(0, 40), st.integers(41, 80)), min_size=30, max_size=60, unique=True)


@given(LINKS, st.randoms())
def test_no_link_crosses_two_parts_and_order_does_not_matter(
    links: list[tuple[int, int]], order: random.Random
) -> None:
    shuffled = list(links)
    order.shuffle(shuffled)
    split = split_links(np.array(links), SETTINGS)
    again = split_links(np.array(shuffled), SETTINGS)
    assert (split.parts == again.parts).all()
    part_of = dict(zip(split.questions.tolist(), split.parts.tolist(), strict=True))
    assert all(part_of[left] == part_of[right] for left, right in links)
    assert sum(len(split.links_of(part, np.array(links))) for part in ("train", "development", "test")) == len(links)


def test_parts_have_their_shares_of_the_sets() -> None:
    links = np.array([(2 * i, 2 * i + 1) for i in range(100)])
    split = split_links(links, SETTINGS)
    sizes = [len(split.questions_of(part)) // 2 for part in ("train", "development", "test")]
    assert sizes == [60, 20, 20]


@pytest.mark.parametrize("links", [[], [(1, 2)], [(1, 2), (3, 4), (4, 5)]])
def test_of_fewer_than_three_sets_all_are_development(links: list[tuple[int, int]]) -> None:
    array = np.array(links, np.int64).reshape(-1, 2)
    split = split_links(array, SETTINGS)
    assert split.questions_of("development").tolist() == sorted({end for link in links for end in link})
    assert split.parts.tolist() == ["development"] * len(split.questions)
    assert split.links_of("development", array).tolist() == array.tolist()
    assert split.set_of(np.array([99])).tolist() == [-1]


@pytest.mark.parametrize("negatives", [1, 3])
def test_negatives_are_never_duplicates_and_as_many_as_wanted(negatives: int) -> None:
    links = np.array([(2 * i, 2 * i + 1) for i in range(10)] + [(0, 2)])
    split = split_links(links, SETTINGS)
    pairs = with_random_negatives(links, np.arange(24), split, negatives, np.random.default_rng(1))
    assert pairs.labels.sum() == len(links)
    assert len(pairs.labels) == (1 + negatives) * len(links)
    wrong = pairs.labels == 0
    sets_left, sets_right = split.set_of(pairs.left[wrong]), split.set_of(pairs.right[wrong])
    assert not ((sets_left == sets_right) & (sets_left >= 0)).any()
    assert (pairs.left != pairs.right).all()


VECTORS = np.random.default_rng(1).normal(size=(30, 8)).astype(np.float32)
SEQUENCES = {key: np.random.default_rng(key).integers(1, 30, 9).astype(np.int32) for key in range(40)}
DUPLICATES = np.array([(2 * i, 2 * i + 1) for i in range(20)])
PAPERS = [
    "bogdanova-sum",
    "dos-santos-cnn",
    "dos-santos-bow-cnn",
    "othman-lstm",
    "othman-gru",
]


def quick(preset: str, *assignments: str, units: int = 6) -> Settings:
    return where_read(config.load(preset, assignments), units=units, dropout=0.0)


@pytest.mark.parametrize("preset", PAPERS)
def test_several_workers_take_the_steps_of_one(preset: str) -> None:
    """The gradients of three workers, summed, against those of one."""
    chosen = quick(preset, "training.batch_size=7", "training.negatives=2", "training.gradient_clipping=0")
    split = split_links(DUPLICATES, chosen.training)
    examples = epoch_examples(DUPLICATES[:7], np.arange(40), split, chosen.training, 1)
    examples = type(examples)(*(column[:7] for column in examples))

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
    examples = epoch_examples(DUPLICATES, np.arange(40), split, chosen.changed(anchors="together"), 1)
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
        losses = train_epoch(network, still, SEQUENCES, three, chosen.changed(anchors=anchors))
        assert losses.mean == pytest.approx(expected / 3, rel=1e-4)


def test_apart_each_pair_has_a_round_from_either_question_with_the_same_negatives() -> None:
    chosen = quick("dos-santos-bow-cnn").training
    split = split_links(DUPLICATES, chosen)
    together, apart = (
        epoch_examples(DUPLICATES, np.arange(40), split, chosen.changed(anchors=anchors), 1)
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


@pytest.mark.parametrize(
    ("assignment", "rule"),
    [
        ("training.negatives=-1", "at least 0 expected"),
        ("training.temperature=0", "more than 0 expected"),
        ("training.patience=-1", "at least 0 expected"),
        ("training.pairs=-1", "at least 0 expected"),
    ],
)
def test_a_setting_out_of_its_range_is_named(assignment: str, rule: str) -> None:
    with pytest.raises(SettingError, match=f"'{assignment.partition('=')[0]}'.*{rule}"):
        config.load("bogdanova-sum", [assignment])
