"""Which pairs are trained on."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dupq.encoders.encoding import build
from dupq.errors import DupqError
from dupq.links import read_pairs, split_links
from dupq.settings import config
from dupq.settings.sections import TrainingSettings
from dupq.stages.training import prepare
from dupq.stages.training.prepare import negative_pool
from dupq.text.keys import Sites
from dupq.training import pairs as training_pairs
from dupq.training.loop import epoch_examples, mine_negatives
from dupq.training.pairs import Rankings, chosen_pairs, positives, with_random_negatives

SETTINGS = TrainingSettings()
TREES = np.array([(10 * i, 10 * i + j) for i in range(10) for j in range(1, 6)])  # ten stars of six questions


def test_positives_are_all_pairs_of_a_set_and_of_training_sets_only() -> None:
    split = split_links(TREES, SETTINGS)
    actual = positives(TREES, split, SETTINGS)
    trained = set(split.questions_of("train").tolist())
    expected = {(a, b) for a in trained for b in trained if a < b and a // 10 == b // 10}
    assert set(map(tuple, actual.pairs.tolist())) == expected
    assert len(actual.pairs) == len(expected) == 6 * 15
    linked = positives(TREES, split, SETTINGS.changed(positives="links"))
    assert len(linked.pairs) == 6 * 5


def test_a_large_set_gives_its_links_first_and_counts_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_pairs, "SET_PAIRS", 400)
    links = np.array([*((0, i) for i in range(1, 200)), (300, 301), (302, 303), (304, 305)])
    few = SETTINGS
    for seed in range(1, 9):  # until the large set is in the training part
        few = few.changed(seed=seed)
        split = split_links(links, few)
        if 0 in split.questions_of("train"):
            break
    actual = positives(links, split, few)
    large = actual.pairs[actual.pairs[:, 1] < 200]
    assert len(large) == len(np.unique(large, axis=0)) <= 400
    assert (large[:, 0] < large[:, 1]).all()
    assert {(0, i) for i in range(1, 200)} <= set(map(tuple, large.tolist()))
    assert actual.over_set_pairs == 200 * 199 // 2 - len(large)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(0, 60), st.randoms())
def test_a_smaller_training_set_is_part_of_a_larger_one_whatever_the_order(few: int, more: int, order) -> None:  # type: ignore[no-untyped-def]
    rows = TREES.tolist()
    order.shuffle(rows)
    small, large = (chosen_pairs(TREES, most, 1).tolist() for most in (few, few + more))
    assert len(small) == min(few, len(TREES))
    assert all(pair in large for pair in small)
    assert sorted(chosen_pairs(np.array(rows), few, 1).tolist()) == sorted(small)


@pytest.mark.parametrize("most", [1000, 40])
def test_negatives_are_training_questions_or_without_duplicates(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "NEGATIVE_POOL", most)
    split = split_links(TREES, SETTINGS)
    part_of = dict(zip(split.questions.tolist(), split.parts.tolist(), strict=True))
    allowed = [key for key in range(100) if part_of.get(key, "train") == "train"]
    assert len(allowed) == 100 - 2 * 2 * 6
    actual = negative_pool(np.arange(100), split).tolist()
    assert actual == sorted(set(actual) & set(allowed))
    assert len(actual) == min(most, len(allowed))
    read = np.union1d(actual, split.questions)  # what training has of the archive
    assert negative_pool(read, split).tolist() == actual


@given(st.integers(0, 30), st.integers(0, 9), st.integers(0, 2**32))
def test_each_link_has_as_many_negatives_and_its_questions_take_turns(links: int, negatives: int, seed: int) -> None:
    pairs = np.array([(2 * i, 2 * i + 1) for i in range(links)], np.int64).reshape(-1, 2)
    split = split_links(pairs, SETTINGS)
    actual = with_random_negatives(pairs, np.arange(100), split, negatives, np.random.default_rng(seed))
    linked, drawn = actual.left[actual.labels == 0], actual.right[actual.labels == 0]
    assert (linked != drawn).all()
    assert not split.in_one_set(linked, drawn).any()
    counts = np.array([[(linked == question).sum() for question in pair] for pair in pairs.tolist()]).reshape(-1, 2)
    assert counts.sum(axis=1).tolist() == [negatives] * links
    more_of_left = counts[:, 0] - counts[:, 1]
    if negatives % 2:
        assert sorted(more_of_left.tolist()) == [-1] * (links // 2) + [1] * (links - links // 2)
    else:
        assert not more_of_left.any()


def test_a_pool_of_nearly_only_duplicates_gives_the_one_that_is_none_and_of_nothing_else_an_error() -> None:
    split = split_links(np.array([*TREES, (0, 1000)]), SETTINGS)
    own = np.array([0, 1, 2, 3, 4, 5, 1000])
    links = np.array([(0, 1), (0, 2)])
    pool = np.concatenate([np.repeat(own, 3000), [77]])
    actual = epoch_examples(links, pool, split, SETTINGS, 1)
    assert isinstance(actual, Rankings)
    assert (actual.negatives == 77).all()
    with pytest.raises(DupqError, match="no negatives"):
        epoch_examples(links, own, split, SETTINGS, 1)


def test_mined_negatives_are_the_nearest_that_duplicate_neither_by_link_nor_by_words() -> None:
    """Texts of ten words; question 10 i + 7 is a copy of question 10 i that nobody linked."""
    generator = np.random.default_rng(1)
    sequences = {key: generator.integers(2, 40, 12).astype(np.int32) for key in range(100)}
    for tree in range(10):
        sequences[10 * tree + 7] = sequences[10 * tree].copy()
    chosen = config.load("bogdanova-max", ["encoder.units=8", "training.mined_negatives=3"])
    network = build(chosen.encoder, generator.normal(size=(40, 8)).astype(np.float32), seed=1)
    split = split_links(TREES, chosen.training)
    used = positives(TREES, split, chosen.training).pairs
    pool = np.arange(100)
    actual = mine_negatives(network, sequences, used, pool, split, chosen, 1)
    assert actual.shape == (len(used), 3)
    assert (actual == mine_negatives(network, sequences, used, pool, split, chosen, 1)).all()
    few = mine_negatives(network, sequences, used, np.array([99]), split, chosen, 1)
    assert (few == 99).all()  # all that a small pool has

    from dupq.encoders.encoding import encode

    vectors = encode(network, [sequences[key] for key in range(100)], 64).vectors.astype(np.float64)
    for (left, _), negatives in zip(used.tolist(), actual.tolist(), strict=True):
        allowed = [key for key in range(100) if key != left and not (key // 10 == left // 10 and key % 10 < 6)]
        allowed = [key for key in allowed if (sequences[key] != sequences[left]).any()]
        nearest = sorted(allowed, key=lambda key, left=left: (-vectors[left] @ vectors[key], key))[:3]  # type: ignore[misc]
        assert vectors[left] @ vectors[negatives].T == pytest.approx(vectors[left] @ vectors[nearest].T, abs=2e-3)


SITES = Sites(["a.example.com", "b.example.com"])


def test_a_pair_file_names_questions_by_site_or_by_id_alone() -> None:
    content = "\ufeffa.example.com/7\ta.example.com/3\r\n\nb.example.com/1\ta.example.com/3\t0\n"
    content += "a.example.com/3\ta.example.com/7\t1\n"
    pairs, labels = read_pairs(content.encode(), SITES, "f.tsv")
    first = SITES.pack("a.example.com", np.array([3, 7]), "").tolist()
    other = int(SITES.pack("b.example.com", np.array([1]), "")[0])
    assert pairs.tolist() == [first, [first[0], other], first]
    assert labels.tolist() == [True, False, True]
    assert [column.shape for column in read_pairs(b"", SITES, "f.tsv")] == [(0, 2), (0,)]


def test_a_heading_is_passed_over_and_lines_keep_their_order() -> None:
    content = b"qid1\tqid2\tis_duplicate\n7\t3\n5\t6\t0\n7\t3\t0\n"
    pairs, labels = read_pairs(content, Sites(["one.example.com"]), "f.tsv")
    assert (pairs.tolist(), labels.tolist()) == ([[3, 7], [5, 6], [3, 7]], [True, False, False])
    with pytest.raises(DupqError, match="line 2"):
        read_pairs(b"qid1\tqid2\nqid1\tqid2\n", Sites(["one.example.com"]), "f.tsv")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1\t2", "no site"),
        ("a.example.com/1", "1 columns"),
        ("a.example.com/1\ta.example.com/2\tyes", "label 'yes'"),
        ("a.example.com/1\ta.example.com/1", "with itself"),
        ("c.example.com/1\ta.example.com/1", "site 'c.example.com'"),
        ("a.example.com/-1\ta.example.com/1", "no question id"),
    ],
)
def test_a_wrong_line_is_an_error_that_names_it(line: str, reason: str) -> None:
    with pytest.raises(DupqError, match=rf"f\.tsv, line 2: .*{reason}"):
        read_pairs(f"a.example.com/1\ta.example.com/2\n{line}\n".encode(), SITES, "f.tsv")


def test_a_pair_file_that_is_no_text_is_an_error() -> None:
    with pytest.raises(DupqError, match=r"f\.tsv: not a text in UTF-8"):
        read_pairs(b"\xff\xfe1\t2", SITES, "f.tsv")


LINKS = st.lists(st.tuples(st.integers(0, 40), st.integers(41, 80)), min_size=30, max_size=60, unique=True)


@given(LINKS, st.randoms())
def test_no_link_crosses_parts_and_order_does_not_matter(links: list[tuple[int, int]], order: random.Random) -> None:
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
