"""Whether an encoder knows an archive, on small made ones."""

import numpy as np
import pyarrow as pa
import pytest
from oracles.slow_ids import slow_ids

from dupq.encoders.encoding import build
from dupq.encoders.saved import Fitness, Reader, fitness
from dupq.settings import config
from dupq.settings.sections import EncoderSettings, TextSettings
from dupq.tables import TEXTS
from dupq.text.questions import Vocabulary

QUESTIONS = 120


def archive(prefix: str, seed: int, count: int = QUESTIONS) -> list[tuple[str, str]]:
    """Titles and bodies of words that begin with `prefix`; those of a question share some of their words."""
    random = np.random.default_rng(seed)
    words = [f"{prefix}{number}" for number in range(400)]
    rows = []
    for _ in range(count):
        topic = random.choice(words, 6, replace=False).tolist()
        rows.append((" ".join(topic[:5]), " ".join([*random.permutation(topic[1:]), *random.choice(words, 6), "the"])))
    return rows


def table(rows: list[tuple[str, str]]) -> pa.Table:
    keys = np.sort(np.random.default_rng(9).choice(10**6, len(rows), replace=False))
    texts = [f"{title} {body}".strip() for title, body in rows]
    columns = [pa.array(keys), pa.array([title for title, _ in rows]), pa.array(texts)]
    return pa.table([pa.chunked_array([column]) for column in columns], schema=TEXTS)


def reader(rows: list[tuple[str, str]]) -> Reader:
    """An encoder of random word vectors that knows the words of `rows`."""
    words = sorted({word for row in rows for text in row for word in text.split(" ") if word})
    vocabulary = Vocabulary(words, TextSettings())
    vectors = np.random.default_rng(1).normal(size=(len(vocabulary), 64)).astype(np.float32)
    encoder = EncoderSettings(kind="word_bag")
    network = build(encoder, vectors, seed=1)
    network.prepare([slow_ids(vocabulary, " ".join(row), 512) for row in rows], [])
    network.tune(None)
    return Reader(network.eval(), vocabulary, config.load().changed(encoder=encoder))


OWN = archive("w", 1)


def slow_found(known: Reader, rows: list[tuple[str, str]]) -> float:
    """By all cosines of titles and bodies, as the encoder mixes them."""
    most, measure = known.settings.encoder.maximum_tokens, known.network.measure
    ids = (known.vocabulary.sequences(pa.array(side), most)[0] for side in zip(*rows, strict=True))
    titles, bodies = map(known.encode_ids, ids)

    def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        unit = [side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in (one, other)]
        return unit[0] @ unit[1].T

    width = max(side.words.shape[1] for side in (titles, bodies))
    bags = [np.pad(side.words.toarray(), [(0, 0), (0, width - side.words.shape[1])]) for side in (titles, bodies)]
    dense = cosines(titles.vectors.astype(float), bodies.vectors.astype(float))
    scores = measure.dense * dense + measure.lexical * cosines(*bags)
    return float((scores.argmax(axis=1) == np.arange(len(rows))).mean())


def test_an_encoder_knows_its_own_archive_and_not_one_of_other_words() -> None:
    """One word is common to both."""
    known, other = reader(OWN), archive("m", 2)
    actual, foreign = fitness(known, table(OWN)), fitness(known, table(other))
    assert (actual["questions"], actual["unknown_words"]) == (QUESTIONS, 0)
    assert actual["bodies_found"] == pytest.approx(slow_found(known, OWN))
    assert actual["bodies_found"] > 0.6
    words = [word for row in other for text in row for word in text.split(" ")]
    assert foreign["unknown_words"] == pytest.approx(1 - words.count("the") / len(words))
    assert foreign["bodies_found"] < 0.05


@pytest.mark.parametrize(("without_body", "is_measured"), [(70, True), (71, False)])
def test_bodies_are_looked_for_if_fifty_questions_have_both(without_body: int, is_measured: bool) -> None:
    rows = [(title, "" if index < without_body else body) for index, (title, body) in enumerate(OWN)]
    actual = fitness(reader(OWN), table(rows))
    assert (actual["bodies_found"] is not None) == is_measured
    assert (actual["questions"], actual["unknown_words"]) == (QUESTIONS, 0)


def test_questions_without_a_title_or_a_body_are_no_riddles_and_no_words_no_error() -> None:
    known, odd = reader(OWN), [("", ""), ("", "w1 w2"), ("w3 w4", "")]
    assert fitness(known, table([*odd, *OWN]))["bodies_found"] == fitness(known, table(OWN))["bodies_found"]
    for rows in ([], [("", "")] * 60):
        nothing = Fitness(questions=len(rows), unknown_words=0.0, bodies_found=None)
        assert fitness(known, table(rows) if rows else TEXTS.empty_table()) == nothing
