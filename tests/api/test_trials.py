"""Encoders trained and compared in memory, on the archive of a run."""

import numpy as np
import pytest
from fabricated_run import build_run

import dupq
from dupq.api.trials import Trials, _split
from dupq.errors import DupqError
from dupq.evaluation.measures import average_precision
from dupq.neighbours.embeddings import Embeddings
from dupq.neighbours.exact import pair_scores

QUICK = ["title_body.epochs=1", "training.epochs=1", "word_vectors.algorithm=random", "word_vectors.dimensions=20"]


@pytest.fixture(scope="module")
def trials(small_runs) -> Trials:
    return dupq.open_run(small_runs.strict).trials


def test_ranks_are_those_of_a_full_sort(small_runs, trials: Trials) -> None:
    run = dupq.open_run(small_runs.strict)
    questions = run.questions.pandas(["site", "question_id", "title", "body_html"]).sort_values("question_id")
    ids = questions["question_id"].to_numpy()
    encoded = run.encoder.encode_whole(questions["title"].tolist(), questions["body_html"].tolist())
    embedded = Embeddings(ids, *encoded)
    links = run.links.pandas(filter=[("link_type", "=", "duplicate")])
    rows = trials.ranks({"own": run.encoder}, k=20).pandas()
    mine = rows[rows["system"] == "own"]
    assert len(mine) == len(trials.split.questions_of("test")) > 3
    for row in mine.itertuples():
        query = embedded.take(np.full(len(ids), np.searchsorted(ids, row.question_id)))
        scores = pair_scores(run.encoder.measure, query, embedded)
        ranked = [one for one in ids[np.lexsort((ids, -scores))].tolist() if one != row.question_id][:20]
        relevant = set_of(row.question_id, links)
        places = [place for place, one in enumerate(ranked, 1) if one in relevant]
        assert (row.rank if row.rank == row.rank else None) == (places[0] if places else None)
        assert row.average_precision == average_precision(ranked, relevant, 20)
        assert row.first_id == ranked[0]


def set_of(question: int, links) -> set[int]:
    """The other questions that links lead to, however many steps away."""
    found = {question}
    while True:
        ends = links[links["question_id"].isin(found) | links["related_id"].isin(found)]
        more = found | set(ends["question_id"]) | set(ends["related_id"])
        if more == found:
            return found - {question}
        found = more


def test_training_twice_gives_the_same_encoder(trials: Trials) -> None:
    one, other = (trials.train("dupq", QUICK) for _ in range(2))
    assert one.curve == other.curve
    assert [row["epoch"] for row in one.curve] == [0, 1]
    assert 0 < one.curve[0]["quality"] <= 1
    texts = ["How do I bake bread?", "Where is my bicycle?"]
    np.testing.assert_array_equal(one.encoder.encode(texts), other.encoder.encode(texts))
    assert one.encoder.dimensions == 20


def test_an_encoder_is_compared_on_no_set_that_the_runs_own_was_trained_or_tuned_on() -> None:
    links = np.array([[1, 2], [3, 4], [5, 6], [4, 7], [8, 9]])
    seen = {"train": np.array([1, 2]), "development": np.array([3, 4]), "test": np.array([5, 6])}
    found = _split(links, seen)
    assert found.questions_of("test").tolist() == [5, 6, 8, 9]
    assert found.questions_of("train").tolist() == [1, 2]
    nothing = {part: np.zeros(0, np.int64) for part in seen}
    assert set(_split(links, nothing).parts) == {"train", "development", "test"}


def test_what_cannot_be_tried_is_said(trials: Trials, tmp_path) -> None:
    with pytest.raises(DupqError, match="neither a teacher nor a file"):
        trials.train("dupq-distilled", ["teacher.encoder=x"])
    with pytest.raises(DupqError, match="no such preset"):
        trials.train("best")
    with pytest.raises(DupqError, match="at least 1 expected"):
        trials.ranks({}, k=0)
    run = dupq.open_run(build_run(str(tmp_path)))
    with pytest.raises(DupqError, match="/archive/links"):
        run.trials  # noqa: B018
