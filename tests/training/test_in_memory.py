"""Training in one process: the weights of the best epoch are those of a training that ended there."""

import numpy as np
import pyarrow as pa
import pytest

from dupq.encoders.reader import Reader
from dupq.links.split import split_links
from dupq.settings import config
from dupq.settings.training import TrainingSettings
from dupq.tables import TEXTS
from dupq.training.in_memory import Lessons, train
from dupq.training.word_vectors import make_word_vectors

WORDS = [f"w{number}" for number in range(40)]


def archive() -> tuple[pa.Table, Lessons]:
    generator = np.random.default_rng(3)
    texts = [" ".join(generator.choice(WORDS, 8)) for _ in range(60)]
    keys = np.arange(60)
    links = np.stack([keys[0::2], keys[1::2]], axis=1)
    split = split_links(links, TrainingSettings())
    positives = split.links_of("train", links)
    table = pa.table([pa.array(keys), pa.array([""] * 60), pa.array(texts)], schema=TEXTS)
    return table, Lessons(positives, np.zeros((0, 2), np.int64), split, split.questions_of("train"))


def embeddings(epochs: int, qualities: list[float]) -> tuple[np.ndarray, list[dict[str, float]]]:
    texts, lessons = archive()
    settings = config.load(
        "bogdanova-sum",
        [f"training.epochs={epochs}", "encoder.units=6", "word_vectors.dimensions=6", "word_vectors.algorithm=random"],
    )
    vectors = make_word_vectors([text.split() for text in texts["text"].to_pylist()], settings.word_vectors, 1)
    told = iter(qualities)

    def measured(reader: Reader) -> dict[str, float]:
        return {"quality": next(told)}

    reader, curve = train(texts, lessons, settings, vectors, measured)
    return reader.encode(texts)[0].vectors, curve


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
