"""A new text among a run's questions, and what two questions have in common."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import dupq
from dupq import storage, tables
from dupq.api.runs import Run
from dupq.clusters.calibration import FEATURES, KINDS
from dupq.clusters.evidence import UNLISTED
from dupq.errors import DupqError, SettingError
from dupq.evaluation.verdicts import Verdict, last_verdicts
from dupq.export import export
from dupq.report.explorer import explorer_data, open_tables
from dupq.runs.reader import ends_of
from dupq.runs.scoring import inserted
from dupq.serve.contents import Contents
from dupq.text.keys import Sites

SITE = "sample.stackexchange.com"


@pytest.fixture(scope="module")
def run(small_runs) -> Run:
    return dupq.open_run(small_runs.folder + "/runs")


def test_the_nearest_by_the_encoder_are_those_of_a_full_sort(run: Run) -> None:
    title = run.questions.arrow(["title"])["title"][7].as_py()
    found = run.similar(title, k=5).arrow()
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


def test_texts_are_matched_side_by_side_and_a_question_with_itself_first(run: Run) -> None:
    rows = run.questions.arrow(["question_id", "title", "body_html"]).slice(5, 40).to_pylist()
    alone = {row["question_id"] for row in run.clusters.arrow(filter=[("cluster_size", "=", 1)]).to_pylist()}
    rows = [row for row in rows if row["question_id"] in alone and row["body_html"]][:6]
    found = run.match([{"id": f"q{row['question_id']}", **row} for row in rows], k=4).arrow().to_pylist()
    assert len(run.match([])) == 0
    assert [row["text"] for row in found] == [f"q{row['question_id']}" for row in rows for _ in range(4)]
    for row in rows:
        own = [match for match in found if match["text"] == f"q{row['question_id']}"]
        assert [match["rank"] for match in own] == [1, 2, 3, 4]
        assert (own[0]["question_id"], own[0]["title"]) == (row["question_id"], row["title"])
        assert own[0]["probability"] == max(match["probability"] for match in own)
        again = run.similar(row["title"], row["body_html"], k=4).arrow().to_pylist()
        assert [{**match, "text": own[0]["text"]} for match in again] == own


def test_the_server_answers_many_at_once_as_match_does_alone(run: Run, small_runs) -> None:
    rows = run.questions.arrow(["title", "body_html"]).slice(3, 9).to_pylist()
    texts = [{"title": row["title"], "text": row["body_html"]} for row in rows]
    hostile = ("<script>alert(1)</script>", "\0", "\u202e\ufeff\U0001f914", "?")
    texts += [{"title": title, "text": ""} for title in hostile]
    texts += [{"title": "How do I bake bread?", "text": "<p>" * 6_000}, {"title": "", "text": "\0 " * 10_000}]
    with open_tables(run) as found, ThreadPoolExecutor(8) as threads:
        contents = Contents(run, found)
        answers = list(threads.map(lambda text: contents.similar({**text, "k": "4"})["questions"], texts))
    for text, answer in zip(texts, answers, strict=True):
        alone = run.match([text], k=4).arrow().drop_columns("text").to_pylist()
        assert sorted(answer, key=lambda row: row["rank"]) == alone
        assert [row["probability"] for row in answer] == sorted((row["probability"] for row in alone), reverse=True)
    assert any("same title" in row["evidence"] for answer in answers for row in answer)


@given(st.lists(st.floats(0, 1, width=32), max_size=6, unique=True), st.floats(0, 1, width=32), st.integers(1, 6))
def test_a_new_text_has_the_place_that_it_would_have_in_a_list(scores: list[float], new: float, k: int) -> None:
    listed = sorted(scores, reverse=True)[:k]
    padded = np.array([[*listed, *[-np.inf] * (k - len(listed))]])
    (rank,), (made,) = inserted(padded, np.array([new], np.float32))
    whole = sorted([*listed, new], reverse=True)[:k]
    assert made[: len(whole)].tolist() == whole
    if new not in whole or (len(listed) == k and new == listed[-1]):
        assert rank == UNLISTED
    elif new not in listed:
        assert rank == whole.index(new) + 1


def test_the_evidence_of_a_pair_adds_up_to_its_probability_and_is_drawn(run: Run) -> None:
    rows = run.pairs.arrow(filter=[("source", "=", "encoder")]).to_pylist()
    for row in rows[:: max(1, len(rows) // 40)]:
        why = run.explain(*ends_of(row))
        found = why.evidence
        drawn = {of["evidence"]: of["added"] for of in json.loads(why.plot().to_json())["data"]["values"]}
        assert drawn == {name: value for name, value in found.items() if value}
        assert found.pop("a reranker's reading") == pytest.approx(0, abs=1e-3)
        assert expit(sum(found.values())) == pytest.approx(row["probability"], abs=1e-5)
    assert set(KINDS) == set(found)
    assert sorted(name for names in KINDS.values() for name in names) == sorted(FEATURES)
    near = run.pairs.arrow(filter=[("source", "=", "near_duplicate")]).to_pylist()[0]
    with pytest.raises(DupqError, match="no candidate pair of the encoder"):
        run.explain(*ends_of(near)).evidence  # noqa: B018


def test_the_report_and_the_server_show_what_the_evidence_of_a_pair_adds(small_runs) -> None:
    run = dupq.open_run(small_runs.loose)
    data = explorer_data(run)
    pairs = [(one, pair) for one in data["clusters"] for pair in one["pairs"] if pair["source"] == "encoder"]
    assert pairs
    for _, pair in pairs:
        assert expit(sum(value for _, value in pair["odds"])) == pytest.approx(pair["probability"], abs=5e-3)
    cluster, pair = pairs[0]
    ends = (data["questions"][cluster["questions"][end]] for end in pair["ends"])
    asked = {side: f"0.{question['id']}" for side, question in zip(("left", "right"), ends, strict=True)}
    with open_tables(run) as found:
        assert Contents(run, found).odds(asked) == {"odds": pair["odds"]}


def with_questions(run: str, copy: Path, questions: str) -> Run:
    """Open a copy of a run that names other questions."""
    shutil.copytree(run, copy)
    manifest = storage.read_json(f"{copy}/manifest.json")
    manifest["inputs"]["questions"] = questions
    storage.write_json(f"{copy}/manifest.json", manifest)
    return dupq.open_run(copy)


def test_probabilities_are_unknown_where_the_archive_is_gone(small_runs, tmp_path) -> None:
    run = with_questions(small_runs.strict, tmp_path / "run", "moved")
    found = run.similar("How do I bake bread?", k=3).arrow()
    assert (len(found), found["probability"].null_count, found["title"].null_count) == (3, 3, 3)


def test_a_verdict_goes_where_the_next_run_reads_it(small_runs, tmp_path) -> None:
    shutil.copytree(small_runs.strict, tmp_path / "runs" / "one")
    run = dupq.open_run(tmp_path / "runs" / "one")
    left, right = ends_of(run.worklist.arrow().to_pylist()[0])
    for word in ("same", "different"):
        run.judge(right, left, word)
    assert last_verdicts([str(tmp_path / "runs" / "verdicts.tsv")])[0] == [Verdict(*left, *right, "different")]
    for ends, word in (((left, right), "maybe"), ((left, left), "same")):
        with pytest.raises(DupqError, match="two questions and a verdict expected"):
            run.judge(*ends, word)
    with pytest.raises(DupqError, match="no such question"):
        run.judge(left, (left[0], 987654321), "same")


def test_no_text_has_nothing_similar(run: Run) -> None:
    assert len(run.similar("")) == 0
    with pytest.raises(SettingError, match="k=0"):
        run.similar("what", k=0)


def test_the_parts_of_a_score_sum_to_it(run: Run) -> None:
    pairs = run.pairs.arrow(filter=[("source", "=", "encoder")]).slice(0, 20).to_pylist()
    for row in pairs:
        found = run.explain(*ends_of(row)).weighed
        assert found.words
        assert found.dense + sum(word.contribution for word in found.words) == pytest.approx(found.score, abs=1e-6)
        assert found.score == pytest.approx(row["similarity"], abs=1e-3)
        assert found.words == sorted(found.words, key=lambda word: -word.contribution)


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


def test_a_question_that_has_left_the_archive_leaves_the_others_their_probabilities(small_runs, tmp_path) -> None:
    shutil.copytree(f"{small_runs.folder}/questions", tmp_path / "questions")
    whole = dupq.open_run(small_runs.loose)
    run = with_questions(small_runs.loose, tmp_path / "runs" / "one", str(tmp_path / "questions"))
    before = whole.similar("How do I bake bread?", k=3).arrow()
    gone = before["question_id"][1].as_py()
    for file in (tmp_path / "questions").rglob("*.parquet"):
        table = pq.read_table(file, partitioning=None)
        pq.write_table(table.filter(pc.not_equal(table["question_id"], gone)), file)
    after = run.similar("How do I bake bread?", k=3).arrow()
    assert after["question_id"].equals(before["question_id"])
    assert [p is None for p in after["probability"].to_pylist()] == [False, True, False]
    assert after["probability"][0].as_py() == pytest.approx(before["probability"][0].as_py(), rel=0.02)
    assert run.at(0.01).threshold == 0.01
    assert sum("odds" in pair for one in explorer_data(run)["clusters"] for pair in one["pairs"])


def test_neighbours_on_the_map_of_embedding_atlas_are_those_of_the_search(run: Run, tmp_path) -> None:
    (written,) = export(run.uri, "embedding-atlas", str(tmp_path / "out"))
    rows = pq.read_table(written.uri)
    keys = Sites(sorted(run.metrics["sites"])).pack_columns(rows["site"], rows["question_id"], "here").tolist()
    files = storage.list_files(f"{run.uri}/work/neighbours/nearest", ".parquet")
    nearest = [row for file in files for row in storage.read_table(file.uri, tables.NEAREST).to_pylist()]
    lists = {row["key"]: row["neighbours"] for row in nearest}
    assert len(lists) == len(keys) > 100
    for key, neighbours in zip(keys, rows["neighbors"].to_pylist(), strict=True):
        assert [keys[row] for row in neighbours["ids"]] == lists[key]
        assert neighbours["distances"] == sorted(neighbours["distances"])
        assert all(0 <= distance <= 1 for distance in neighbours["distances"])
