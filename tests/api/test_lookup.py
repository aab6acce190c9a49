"""A new text among a run's questions, and what two questions have in common."""

import numpy as np
import pytest

import dupq
from dupq.api.runs import Run
from dupq.errors import DupqError, SettingError
from dupq.text.questions import question_text

SITE = "sample.stackexchange.com"


@pytest.fixture(scope="module")
def run(small_runs) -> Run:
    return dupq.open_run(small_runs.folder + "/runs")


def test_the_nearest_by_the_encoder_are_those_of_a_full_sort(run: Run) -> None:
    title = run.questions.arrow(["title"])["title"][7].as_py()
    found = run.similar(title, k=5).arrow(filter=[("source", "=", "encoder")])
    table = run.embeddings.arrow()
    own = run.encoder.encode_whole([title])
    vectors = np.array(table["embedding"].to_pylist(), np.float64)
    bag = dict(zip(own.words.indices.tolist(), own.words.data.tolist(), strict=True))
    scores = vectors @ own.vectors[0].astype(np.float64) / np.maximum(np.linalg.norm(vectors, axis=1), 1e-9)
    scores /= np.linalg.norm(own.vectors[0].astype(np.float64))
    for row, (words, weights) in enumerate(
        zip(table["words"].to_pylist(), table["word_weights"].to_pylist(), strict=True)
    ):
        product = sum(bag.get(word, 0.0) * weight for word, weight in zip(words, weights, strict=True))
        length = np.linalg.norm(weights) * np.linalg.norm(own.words.data)
        scores[row] += run.encoder.measure.lexical * product / length if length else 0.0
    best = np.sort(scores)[::-1][:5]
    assert found["similarity"].to_pylist() == pytest.approx(best.tolist(), abs=1e-5)
    assert found["rank"].to_pylist() == [1, 2, 3, 4, 5]


def test_minhash_finds_the_question_itself(run: Run) -> None:
    questions = run.questions.arrow(["question_id", "title", "body_html"]).to_pylist()
    texts = [question_text(q["title"], q["body_html"], run.encoder.reader.settings.text)[1] for q in questions]
    asked = next(row for row, text in enumerate(texts) if texts.count(text) == 1 and len(text) > 100)
    found = run.similar(questions[asked]["title"], questions[asked]["body_html"]).arrow([*_COLUMNS]).to_pylist()
    nearest = next(row for row in found if row["source"] == "minhash")
    assert nearest["jaccard"] == 1.0
    assert nearest["title"] == questions[asked]["title"]


_COLUMNS = ("source", "rank", "jaccard", "title")


def test_no_text_has_nothing_similar(run: Run) -> None:
    assert len(run.similar("")) == 0
    with pytest.raises(SettingError, match="k=0"):
        run.similar("what", k=0)


def test_the_parts_of_a_score_sum_to_it(run: Run) -> None:
    pairs = run.pairs.arrow(filter=[("source", "=", "encoder")]).slice(0, 20).to_pylist()
    for row in pairs:
        ends = [(row[f"site_{side}"], row[f"question_id_{side}"]) for side in ("left", "right")]
        found = run.explain(*ends).weighed
        assert found.words
        assert found.dense + sum(word.contribution for word in found.words) == pytest.approx(found.score, abs=1e-6)
        assert found.score == pytest.approx(row["similarity"], abs=1e-3)
        assert found.words == sorted(found.words, key=lambda word: -word.contribution)


def test_the_words_are_words_of_both(run: Run) -> None:
    row = run.pairs.arrow(filter=[("source", "=", "encoder")]).to_pylist()[0]
    ends = [(row[f"site_{side}"], row[f"question_id_{side}"]) for side in ("left", "right")]
    found = run.explain(*ends)
    stems = run.encoder.reader.vocabulary.words
    assert {word.word for word in found.weighed.words} <= set(stems)
    texts = [
        question_text(q["title"], q["body_html"], run.encoder.reader.settings.text)[1]
        for end in ends
        for q in run.questions.arrow(filter=[("site", "=", end[0]), ("question_id", "=", end[1])]).to_pylist()
    ]
    for word in found.weighed.words[:3]:
        assert all(word.word[:3] in text for text in texts)


def test_an_encoder_gives_the_runs_embeddings(run: Run, small_runs) -> None:
    encoder = dupq.load_encoder(small_runs.folder + "/encoder")
    stored = run.embeddings.arrow()
    titles = {row["question_id"]: row for row in run.questions.arrow(["question_id", "title", "body_html"]).to_pylist()}
    rows = [titles[number] for number in stored["question_id"].to_pylist()]
    vectors = encoder.encode([row["title"] for row in rows], [row["body_html"] for row in rows])
    assert vectors.shape == (len(rows), encoder.dimensions)
    np.testing.assert_allclose(vectors, np.array(stored["embedding"].to_pylist()), atol=1e-3)


def test_an_encoder_scores_titles(small_runs) -> None:
    encoder = dupq.load_encoder(small_runs.folder + "/encoder")
    same, other = encoder.score(["How do I bake bread?"] * 2, ["How do I bake bread?", "Where is my bicycle?"])
    assert same == pytest.approx(encoder.measure.highest, abs=1e-3)
    assert other < same
    with pytest.raises(DupqError, match="1 titles on the left, but 2"):
        encoder.score(["a"], ["b", "c"])
    with pytest.raises(DupqError, match="2 titles, but 1 bodies"):
        encoder.encode(["a", "b"], [""])


def test_where_no_encoder_is_it_is_said(tmp_path) -> None:
    with pytest.raises(DupqError, match="no encoder here"):
        dupq.load_encoder(str(tmp_path))
