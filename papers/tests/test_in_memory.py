"""Training in one process: the weights of the best epoch are those of a training that ended there."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from dupq.encoders.saved import Reader
from dupq.errors import SettingError
from dupq.links import split_links
from dupq.settings import config
from dupq.settings.sections import TrainingSettings
from dupq.tables import TEXTS
from dupq.training import loop
from dupq.training.word_vectors import make_word_vectors
from dupq_papers.experiments import in_memory
from dupq_papers.experiments.in_memory import KnownPairs, train

WORDS = [f"w{number}" for number in range(40)]


def archive() -> tuple[pa.Table, KnownPairs]:
    generator = np.random.default_rng(3)
    texts = [" ".join(generator.choice(WORDS, 8)) for _ in range(60)]
    keys = np.arange(60)
    links = np.stack([keys[0::2], keys[1::2]], axis=1)
    split = split_links(links, TrainingSettings())
    positives = split.links_of("train", links)
    table = pa.table([pa.array(keys), pa.array([""] * 60), pa.array(texts)], schema=TEXTS)
    return table, KnownPairs(positives, np.zeros((0, 2), np.int64), split, split.questions_of("train"))


def embeddings(epochs: int, qualities: list[float], *assignments: str) -> tuple[np.ndarray, list[dict[str, float]]]:
    texts, known = archive()
    settings = config.load(
        "bogdanova-sum",
        [
            f"training.epochs={epochs}",
            "encoder.units=6",
            "word_vectors.dimensions=6",
            "word_vectors.algorithm=random",
            *assignments,
        ],
    )
    vectors = make_word_vectors([text.split() for text in texts["text"].to_pylist()], settings.word_vectors, 1)
    told = iter(qualities)

    def measured(reader: Reader) -> dict[str, float]:
        return {"quality": next(told)}

    reader, curve = train(texts, known, settings, vectors, measured)
    return reader.encode(texts).vectors, curve


def test_the_best_epoch_is_kept_the_first_of_equal_ones() -> None:
    best, curve = embeddings(4, [0.1, 0.2, 0.9, 0.9, 0.3, 0.0])
    ended, _ = embeddings(2, [0.1, 0.2, 0.9, 0.0])
    longer, _ = embeddings(3, [0.1, 0.2, 0.3, 0.9, 0.0])
    assert np.array_equal(best, ended)
    assert not np.array_equal(best, longer)
    assert [row["quality"] for row in curve] == [0.1, 0.2, 0.9, 0.9, 0.3]
    assert "loss" not in curve[0]


@pytest.mark.parametrize("epochs", [1, 2])
def test_if_no_epoch_is_better_the_start_is_kept(epochs: int) -> None:
    kept, _ = embeddings(epochs, [0.5] + [0.1] * epochs + [0.0])
    other, _ = embeddings(epochs, [0.5] + [0.4] * epochs + [0.0])
    assert np.array_equal(kept, other)


def test_dropout_is_drawn_anew_for_each_seed_and_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    def train_epoch(*given: Any, **more: Any) -> Any:
        seeds.append(torch.initial_seed())
        return loop.train_epoch(*given, **more)

    monkeypatch.setattr(in_memory, "train_epoch", train_epoch)
    for seed in (1, 2):
        embeddings(2, [0.0] * 4, f"training.seed={seed}")
    assert len(seeds) == len(set(seeds)) == 4


def test_a_teacher_is_refused() -> None:
    with pytest.raises(SettingError, match=r"teacher\.encoder"):
        embeddings(1, [0.0] * 3, "teacher.encoder=/some/encoder")
