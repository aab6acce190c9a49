"""The measured points of the collision curve: beside a slow twin, and beside the curve."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash
from fabricated_run import CS, LARGE, TRAVEL, build_run

from dupq import storage
from dupq.near_duplicates.minhash import SEED, bands_of, collision_probability
from dupq.near_duplicates.shingles import shingle_sets
from dupq.report import findings
from dupq.runs.reader import open_run
from dupq.settings.sections import NearDuplicateSettings

NEAR = NearDuplicateSettings()
BANDS, ROWS = bands_of(NEAR)


def edited(generator: np.random.Generator, words: int, changed: int) -> tuple[str, str]:
    """Two texts of so many words, of which so many differ."""
    one = generator.integers(0, 50_000, words)
    other = one.copy()
    other[generator.choice(words, changed, replace=False)] = generator.integers(50_000, 100_000, changed)
    return " ".join(f"w{word}" for word in one), " ".join(f"w{word}" for word in other)


def met(one: str, other: str, seed: int) -> bool:
    """Whether datasketch's signatures of both share a band."""
    signed = []
    for text in (one, other):
        signature = MinHash(num_perm=NEAR.permutations, seed=seed, scheme="affine32", hashfunc=int)
        for value in shingle_sets(pa.array([text]), NEAR.shingle_size).hashes:
            signature.update(int(value) & 0xFFFFFFFF)
        signed.append(signature.hashvalues.astype(np.uint32))
    bands = [side[: BANDS * ROWS].reshape(BANDS, ROWS) for side in signed]
    return bool((bands[0] == bands[1]).all(axis=1).any())


def test_points_follow_the_curve_that_they_are_beside() -> None:
    generator = np.random.default_rng(1)
    pairs = [edited(generator, 80, changed) for changed in range(41) for _ in range(12)]
    texts = pa.array([text for pair in pairs for text in pair])
    left = np.arange(0, len(texts), 2)
    found = findings.points(texts, left, left + 1, NEAR)
    assert sum(point.pairs for point in found) == len(pairs)
    assert len(found) > 10
    for point in found:
        expected = float(collision_probability(np.array(point.similarity), BANDS, ROWS))
        assert point.share == pytest.approx(expected, abs=0.15)


def test_points_are_those_of_a_slow_twin() -> None:
    generator = np.random.default_rng(2)
    pairs = [edited(generator, 30, changed) for changed in (1, 2, 3, 4, 5, 6)]
    texts = pa.array([text for pair in pairs for text in pair])
    left = np.arange(0, len(texts), 2)
    found = findings.points(texts, left, left + 1, NEAR)
    seeds = range(SEED + 1, SEED + 1 + findings.SEEDS)
    times = sum(met(*pair, seed) for pair in pairs for seed in seeds)
    assert sum(point.share * point.pairs for point in found) == pytest.approx(times / findings.SEEDS)


def test_pairs_whose_texts_are_gone_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(build_run(str(tmp_path)))
    whole = {LARGE[0]: ("The same words", "<p>here</p>"), LARGE[1]: ("The same words", "<p>here</p>")}
    pairs = [(LARGE[0], LARGE[1]), (LARGE[0], (TRAVEL, 1)), ((CS, 40), (TRAVEL, 1))]
    monkeypatch.setattr(findings, "TEXTS", 0)
    assert findings.measured(run, pairs, whole) == [(1.0, 1.0, 1)]
    assert findings.measured(run, pairs, {}) == []


def test_texts_beside_their_beginnings_fill_the_range(tmp_path: Path) -> None:
    run = open_run(build_run(str(tmp_path)))
    words = [" ".join(f"w{number}of{key}" for number in range(100)) for key in range(2)]
    whole = {key: (text, "") for key, text in zip(LARGE[:2], words, strict=True)}
    found = findings.measured(run, [(LARGE[0], LARGE[1])], whole)
    assert sum(point.pairs for point in found) == 1 + 2 * len(findings._BEGINNINGS)
    assert found[0].similarity == 0
    assert [point.similarity for point in found[1:]] == pytest.approx(np.arange(0.3, 1, 0.05), abs=0.02)


def test_settings_of_another_version_are_not_guessed(tmp_path: Path) -> None:
    uri = build_run(str(tmp_path))
    place = storage.join(uri, "config.json")
    storage.write_json(place, storage.read_json(place) | {"unknown": {"setting": 1}})
    whole = dict.fromkeys(LARGE[:2], ("The same words", "here"))
    assert findings.measured(open_run(uri), [(LARGE[0], LARGE[1])], whole) == []
