"""What epochs are measured by."""

import numpy as np
import pytest

from dupq.encoders.encoding import build
from dupq.encoders.saved import FEWEST_TITLES
from dupq.evaluation import development
from dupq.evaluation.development import HeldOut, body_map, development_map, held_out_keys, hold_out
from dupq.links import KnownDuplicates, split_links
from dupq.settings import config
from dupq.text.questions import TitlesAndBodies
from dupq.text.token_arrays import TokenIds

WORDS = 40
SETTINGS = config.load("dupq", ["training.development_pool=120"])


def texts(keys: list[int]) -> TitlesAndBodies:
    """A title and a body of one word each, which tells the question."""
    places = np.arange(len(keys) + 1)
    sides = (TokenIds(sign * np.array(keys, np.int64), places) for sign in (1, -1))
    return TitlesAndBodies(np.array(keys, np.int64), *sides)


def split(found: TitlesAndBodies) -> tuple[TitlesAndBodies, HeldOut | None]:
    """What is trained on, and what is set apart."""
    keys = held_out_keys(found.keys, SETTINGS)
    if not len(keys[0]):
        return found, None
    kept = found.take(~np.isin(found.keys, keys[0]))
    pieces = [found.take(np.arange(len(found.keys) // 2)), found.take(np.arange(len(found.keys) // 2, len(found.keys)))]
    return kept, hold_out(pieces, *keys)


@pytest.mark.parametrize("count", [1, 999, 1000, 3000])
def test_a_share_of_the_questions_is_set_apart_whatever_their_order(count: int) -> None:
    generator = np.random.default_rng(count)
    keys = np.unique(generator.integers(1, 1 << 31, count)).tolist()
    kept, apart = split(texts(keys))
    again, same = split(texts(generator.permutation(keys).tolist()))
    assert sorted(again.keys.tolist()) == kept.keys.tolist()
    if len(keys) // 20 < FEWEST_TITLES:
        assert (apart, same) == (None, None)
        assert kept.keys.tolist() == keys
        return
    asked = [int(title[0]) for title in apart.titles]
    assert len(asked) == min(len(keys) // 20, 120)
    assert sorted([*asked, *kept.keys.tolist()]) == keys
    assert set(asked) == {int(title[0]) for title in same.titles}
    assert [-int(body[0]) for body in [*apart.bodies][: len(asked)]] == asked
    assert len({int(body[0]) for body in apart.bodies}) == min(len(keys), 120)
    assert {int(title[0]) for title in kept.titles} == {-int(body[0]) for body in kept.bodies} == set(kept.keys)


def slow_body_map(titles: np.ndarray, bodies: np.ndarray, k: int) -> float:
    """The mean reciprocal rank of body i for title i, from all cosines; ties by number."""
    total = 0.0
    for number, title in enumerate(titles):
        scores = [float(title @ body) for body in bodies]
        rank = 1 + sum(score > scores[number] for score in scores)
        rank += sum(score == scores[number] for score in scores[:number])
        total += 1 / rank if rank <= k else 0.0
    return total / len(titles)


@pytest.mark.parametrize("k", [100, 3])
def test_titles_are_measured_by_the_mean_reciprocal_rank_of_their_bodies(
    k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(development, "RANKED", k)
    generator = np.random.default_rng(1)
    network = build(SETTINGS.encoder, generator.normal(size=(WORDS, 8)).astype(np.float32), 1)
    network.prepare([np.arange(2, WORDS, dtype=np.int32)], [])
    bodies = [generator.integers(2, WORDS, 6, dtype=np.int32) for _ in range(30)]
    titles = [np.append(body[:2], generator.integers(2, WORDS, 2, dtype=np.int32)) for body in bodies[:12]]

    def embedded(some: list[np.ndarray]) -> np.ndarray:
        from dupq.encoders.encoding import encode

        return encode(network, some, 8).vectors.astype(np.float64)

    expected = slow_body_map(embedded(titles), embedded(bodies), k)
    assert 0.2 < expected < 1
    assert body_map(network, HeldOut(TokenIds.of(titles), TokenIds.of(bodies)), SETTINGS) == pytest.approx(
        expected, abs=1e-12
    )


def test_an_epoch_is_measured_by_map_which_copies_have() -> None:
    links, generator = np.arange(60).reshape(-1, 2), np.random.default_rng(2)
    sequences = {key: np.random.default_rng([1, key // 2]).integers(2, WORDS, 6) for key in range(60)}
    known = KnownDuplicates(links, split_links(links, SETTINGS.training), np.zeros((0, 2), np.int64), {})
    network = build(SETTINGS.encoder, generator.normal(size=(WORDS, 6)).astype(np.float32), 1)
    assert development_map(network, sequences, known, SETTINGS) == 1.0
    others = {key: sequence if key % 2 else generator.integers(2, WORDS, 6) for key, sequence in sequences.items()}
    assert development_map(network, others, known, SETTINGS) < 0.9
