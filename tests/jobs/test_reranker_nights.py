"""Jobs with a reranker; its model is a stand-in, but in one night."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentence_stand_in
from inline import without_ray
from scipy.special import logit
from sentence_stand_in import READ
from trained import TrainedSample

import dupq
from dupq import storage
from dupq.encoders.sentence_models import DEFAULT
from dupq.errors import DupqError
from dupq.job.records import StageRecord
from dupq.pipelines.dedup import DedupJob, dedup

SITE = "sample.stackexchange.com"


@pytest.fixture(autouse=True)
def _stand_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("reads"):
        sentence_stand_in.install(monkeypatch)


@dataclasses.dataclass(frozen=True)
class First:
    """A first night, and how many questions the reranker read in it."""

    job: DedupJob
    uri: str
    read: int

    def later(self, output: Path, **more: Any) -> DedupJob:
        return dataclasses.replace(self.job, output=str(output), previous=self.uri, **more)


@pytest.fixture(scope="module")
def first(small_sample: TrainedSample, tmp_path_factory: pytest.TempPathFactory) -> First:
    folder = tmp_path_factory.mktemp("first")
    model = str(sentence_stand_in.write_model(folder / "model"))
    job = DedupJob(small_sample.questions, small_sample.encoder, f"{folder}/runs", small_sample.links, reranker=model)
    with pytest.MonkeyPatch.context() as patch, without_ray():
        sentence_stand_in.install(patch)
        return First(job, dedup(job).uri, len(READ))


def record_of(uri: str) -> StageRecord:
    return storage.read_json(f"{uri}/stages/rerank.json")


def test_all_questions_of_a_small_archive_are_read_and_their_cosines_are_in_the_pairs(first: First) -> None:
    run, record = dupq.open_run(first.uri), record_of(first.uri)
    assert record["rows_in"] == first.read > 250
    assert storage.read_json(f"{first.uri}/manifest.json")["inputs"]["reranker"] == first.job.reranker
    rows = run.pairs.arrow().to_pylist()
    by_encoder = [row for row in rows if row["source"] == "encoder"]
    assert [row["reranker"] for row in rows if row["source"] in ("exact", "near_duplicate")] == [None] * (
        len(rows) - len(by_encoder)
    )
    assert len(by_encoder) == record["rows_out"]
    assert not [row for row in by_encoder if row["reranker"] is None]
    found = [row for row in by_encoder if row["rank_left"] is None and row["rank_right"] is None]
    assert len(found) > 50  # that the reranker alone has found


def test_the_evidence_of_a_pair_adds_up_to_its_probability_with_a_reranker_s_part(first: First) -> None:
    run, parts = dupq.open_run(first.uri), []
    rows = run.pairs.arrow(filter=[("source", "=", "encoder")]).to_pylist()
    for row in rows[:: max(1, len(rows) // 20)]:
        ends = [(row[f"site_{side}"], row[f"question_id_{side}"]) for side in ("left", "right")]
        found = run.explain(*ends).evidence
        parts.append(found["a reranker's reading"])
        assert sum(found.values()) == pytest.approx(logit(np.clip(row["probability"], 1e-7, 1 - 1e-7)), abs=1e-3)
    assert max(map(abs, parts)) > 0.5


def test_a_new_text_is_read_by_the_run_s_reranker_if_it_is_there(
    first: First, caplog: pytest.LogCaptureFixture
) -> None:
    """What repeats the text of a question is as near to another one as that question."""
    run = dupq.open_run(first.uri)
    row = run.pairs.arrow(filter=[("source", "=", "encoder")]).to_pylist()[0]
    own, other = ((row[f"site_{side}"], row[f"question_id_{side}"]) for side in ("left", "right"))
    question = run.questions.arrow(filter=[("question_id", "=", own[1])]).to_pylist()[0]
    text = question["title"], question["body_html"]
    READ.clear()
    with_model = {row["question_id"]: row["probability"] for row in run.similar(*text, k=10).arrow().to_pylist()}
    assert len(READ) == 1
    assert READ[0].startswith(question["title"])
    assert not caplog.records
    assert {own[1], other[1]} & with_model.keys()
    again = dupq.open_run(first.uri)
    Path(str(first.job.reranker), "model.safetensors").write_text("another model")
    try:
        without = {row["question_id"]: row["probability"] for row in again.similar(*text, k=10).arrow().to_pylist()}
    finally:
        Path(str(first.job.reranker), "model.safetensors").write_text("of the model")
    assert len(READ) == 1
    assert "is another model here than in" in caplog.text
    assert without != with_model


def test_a_night_whose_reranker_is_missing_does_not_go_on_without_saying_so(first: First, tmp_path: Path) -> None:
    with pytest.raises(
        DupqError, match=r"this run had the reranker .*model, and .* pip install '\.\[reranker\]'"
    ) as said:
        dedup(first.later(tmp_path, reranker=None))
    assert "--reranker none goes on without" in str(said.value)
    run = dedup(first.later(tmp_path, reranker="none"))
    assert "rerank" not in [record["name"] for record in run.records]
    assert storage.read_json(run.path("manifest.json"))["inputs"].get("reranker") is None


def test_sites_in_a_language_that_the_model_does_not_know_are_not_read(
    small_sample: TrainedSample, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    german = [
        f"Warum ist der {noun} nicht so gut wie ich dachte, und was kann man da machen?" for noun in ("Ofen", "Herd")
    ]
    table = pq.read_table(min(Path(small_sample.questions).rglob("*.parquet")))
    for site in (SITE, "german.stackexchange.com"):
        if site != SITE:
            titles = pa.array([german[row % 2] + f" {row}" for row in range(len(table))])
            table = table.set_column(table.column_names.index("title"), "title", titles)
        folder = tmp_path / "questions" / f"site={site}"
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "part-00000.parquet")
    english = str(sentence_stand_in.write_model(tmp_path / "all-MiniLM-L12-v2"))
    with caplog.at_level(logging.INFO):
        run = dedup(DedupJob(str(tmp_path / "questions"), small_sample.encoder, f"{tmp_path}/runs", reranker=english))
    assert f"german.stackexchange.com (german): not read, as {english} reads English" in caplog.text
    assert READ
    assert not [text for text in READ if text.startswith("Warum ist")]
    rows = dupq.open_run(run.uri).pairs.arrow(filter=[("source", "=", "encoder")]).to_pylist()
    for row in rows:
        assert (row["reranker"] is not None) is (row["site_left"] == row["site_right"] == SITE)
    assert {row["site_left"] for row in rows} == {SITE, "german.stackexchange.com"}


@pytest.mark.reads
def test_a_night_has_the_default_reranker_unless_it_is_told_otherwise(
    small_sample: TrainedSample, tmp_path: Path
) -> None:
    folder = tmp_path / "questions" / f"site={SITE}"
    folder.mkdir(parents=True)
    shard = next(Path(small_sample.questions).rglob("part-00000.parquet"))
    pq.write_table(pq.read_table(shard).slice(0, 60), folder / "part-00000.parquet")
    run = dedup(DedupJob(str(tmp_path / "questions"), small_sample.encoder, str(tmp_path / "runs")))
    assert storage.read_json(run.path("manifest.json"))["inputs"]["reranker"] == DEFAULT
    assert 0 < record_of(run.uri)["rows_in"] <= 60
    cosines = dupq.open_run(run.uri).pairs.arrow(filter=[("source", "=", "encoder")])["reranker"]
    assert cosines.null_count == 0
    model = storage.read_json(run.path("work", "rerank", "model.json"))
    assert (model["factor"], model["offset"]) == (1.0, 0.0)  # the prior's own model
