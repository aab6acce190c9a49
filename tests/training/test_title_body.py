"""Titles and bodies as training data."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dupq.settings.sections import TitleBodySettings
from dupq.text.keys import ID_BITS
from dupq.text.questions import TitlesAndBodies
from dupq.text.token_arrays import TokenIds
from dupq.training.pairs import distillation_targets, targets_in_order, title_body_examples

SIZE = 70


def texts(sites: list[int]) -> TitlesAndBodies:
    """Every word of every text is another one, so that each tells where it is from."""
    generator = np.random.default_rng(1)
    titles, bodies, word = [], [], 2
    for _ in sites:
        lengths = generator.integers(1, 6), generator.integers(1, 40)
        titles.append(np.arange(word, word + lengths[0], dtype=np.int32))
        bodies.append(np.arange(word + 100, word + 100 + lengths[1], dtype=np.int32))
        word += 1_000
    keys = (np.array(sites, np.int64) << ID_BITS) + np.arange(len(sites))
    return TitlesAndBodies(keys, TokenIds.of(titles), TokenIds.of(bodies))


@given(st.lists(st.integers(0, 2), max_size=400), st.integers(1, 3))
def test_each_pair_is_of_one_question_and_shares_no_word(sites: list[int], epoch: int) -> None:
    archive = texts(sites)
    sequences, examples = title_body_examples(archive, TitleBodySettings(batch_size=SIZE), 1, epoch)
    asked = [question // 2 for question in examples.left.tolist()]
    assert asked == [question // 2 for question in examples.right.tolist()]
    assert len(set(asked)) == len(asked) >= min(len(sites), len(sites) - 63)
    for left, right in zip(examples.left.tolist(), examples.right.tolist(), strict=True):
        row = left // 2
        title, body = archive.titles[row].tolist(), archive.bodies[row].tolist()
        one, other = sequences[left].tolist(), sequences[right].tolist()
        assert len(one) > 0
        assert len(other) > 0
        assert not set(one) & set(other)
        words = Counter(one) + Counter(other)
        assert words <= Counter(title) + Counter(body)
        assert Counter(body) <= words
    for start in range(0, len(asked) - len(asked) % SIZE, SIZE):
        batch = {sites[row] for row in asked[start : start + SIZE]}
        whole = {site: sites.count(site) // SIZE for site in set(sites)}
        assert len(batch) == 1 or start // SIZE >= sum(whole.values())


def test_epochs_differ_and_the_same_one_does_not() -> None:
    archive, settings = texts([0] * 200), TitleBodySettings(batch_size=SIZE)
    runs = [title_body_examples(archive, settings, 1, epoch) for epoch in (1, 1, 2)]
    assert runs[0][1].left.tolist() == runs[1][1].left.tolist()
    assert all(np.array_equal(runs[0][0][key], runs[1][0][key]) for key in runs[0][0])
    assert runs[0][1].left.tolist() != runs[2][1].left.tolist()


@pytest.mark.parametrize("span", [4, 1_000])
def test_titles_and_halves_of_bodies_are_both_queries(span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dupq.training.pairs._SPAN", span)
    archive = texts([0] * 400)
    sequences, examples = title_body_examples(archive, TitleBodySettings(batch_size=SIZE), 1, 1)
    titles = [archive.titles[key // 2].tolist() for key in examples.left.tolist()]
    pairs = zip(examples.left.tolist(), examples.right.tolist(), titles, strict=True)
    whole = sum(title in (sequences[left].tolist(), sequences[right].tolist()) for left, right, title in pairs)
    assert whole == len(titles) if span == 1_000 else 0.4 < whole / len(titles) < 0.7


def keys_of(sizes: list[int]) -> np.ndarray:
    return np.concatenate([np.arange(size) | (site << ID_BITS) for site, size in enumerate(sizes)])


def test_targets_are_of_length_1_and_their_sites_have_nothing_in_common() -> None:
    keys, generator = keys_of([50, 1, 30]), np.random.default_rng(2)
    embeddings = (generator.normal(size=(81, 5)) + 3 * (keys >> ID_BITS)[:, None]).astype(np.float32)
    before = embeddings.copy()
    actual = distillation_targets(keys, embeddings)
    assert np.array_equal(embeddings, before)
    for site, size in ((0, 50), (2, 30)):
        of_site = keys >> ID_BITS == site
        expected = embeddings[of_site] - embeddings[of_site].sum(axis=0) / size
        expected /= np.linalg.norm(expected, axis=1)[:, None]
        assert actual.vectors[of_site] == pytest.approx(expected, abs=1e-5)
    assert not actual.vectors[keys >> ID_BITS == 1].any()


def test_batches_are_of_one_site_and_the_rest_is_mixed() -> None:
    keys = keys_of([230, 70, 260])
    targets = distillation_targets(keys, np.random.default_rng(2).normal(size=(560, 4)).astype(np.float32))
    for epoch in (1, 2):
        order = targets_in_order(targets, 1, epoch, 100).left
        assert len(order) == len(set(order.tolist()))
        sites = [set((order[start : start + 100] >> ID_BITS).tolist()) for start in range(0, len(order), 100)]
        assert [len(batch) for batch in sites[:4]] == [1, 1, 1, 1]
        assert sites[4] == {0, 1, 2}
        assert set(keys.tolist()) >= set(order.tolist())
        assert len(order) == 500  # a last batch of 60 waits
