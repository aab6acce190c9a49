"""The whole job on the sample archive, with real Ray."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from trained import TrainedSample

from dupq import storage
from dupq.errors import DupqError, SettingError
from dupq.evaluation_pipeline import EvaluationJob, evaluate
from dupq.ingest_pipeline import IngestJob, ingest
from dupq.pipeline import DedupJob, dedup
from dupq.report.summary import summary
from dupq.runs import Run

TABLES = ("pairs", "clusters", "cluster_stats")


def job(sample: TrainedSample, output: Path, **changes: object) -> DedupJob:
    values = {"questions": sample.questions, "links": sample.links, "truth": sample.truth, **changes}
    return DedupJob(encoder=sample.encoder, output=str(output), **values)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(trained_sample: TrainedSample, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return dedup(job(trained_sample, tmp_path_factory.mktemp("runs")))


@pytest.fixture(scope="module")
def metrics(run: Run) -> dict:
    return storage.read_json(run.path("metrics.json"))


def table(run: Run, name: str) -> pa.Table:
    return pq.read_table(run.path(name))


def key_pairs(pairs: pa.Table) -> list[tuple]:
    columns = ("site_left", "question_id_left", "site_right", "question_id_right")
    return list(zip(*(pairs[column].to_pylist() for column in columns), strict=True))


def test_every_question_stands_once_in_clusters(run: Run, trained_sample: TrainedSample) -> None:
    asked = pq.read_table(trained_sample.questions)["question_id"].to_pylist()
    assert sorted(table(run, "clusters")["question_id"].to_pylist()) == sorted(asked)


def test_pairs_hold_none_twice_none_with_itself_and_the_smaller_key_left(run: Run) -> None:
    pairs = key_pairs(table(run, "pairs"))
    assert len(pairs) == len(set(pairs)) > 1000
    assert all((site, left) < (other, right) for site, left, other, right in pairs)


def test_clusters_are_the_components_of_the_pairs_that_join(run: Run, metrics: dict) -> None:
    import networkx as nx

    pairs = table(run, "pairs")
    joins = pc.or_kleene(
        pc.is_null(pairs["similarity"]), pc.greater_equal(pairs["similarity"], np.float32(metrics["threshold"]))
    )
    graph = nx.Graph([(left, right) for _, left, _, right in key_pairs(pairs.filter(joins))])
    clusters = table(run, "clusters").to_pandas()
    found = clusters[clusters.cluster_size > 1].groupby("cluster_id").question_id.agg(set).tolist()
    assert sorted(map(sorted, found)) == sorted(map(sorted, nx.connected_components(graph)))
    canonical = clusters[clusters.is_canonical]
    assert canonical.cluster_id.is_unique
    assert set(canonical.cluster_id) == set(clusters.cluster_id)
    assert (clusters.cluster_size == clusters.groupby("cluster_id").question_id.transform("size")).all()


def test_similarities_are_the_cosines_of_the_saved_embeddings(run: Run) -> None:
    saved = table(run, "embeddings")
    vectors = np.array(saved["embedding"].to_pylist(), np.float64)
    row = {question_id: index for index, question_id in enumerate(saved["question_id"].to_pylist())}
    pairs = table(run, "pairs")
    pairs = pairs.filter(pc.equal(pairs["source"], "encoder"))
    left = vectors[[row[question_id] for question_id in pairs["question_id_left"].to_pylist()]]
    right = vectors[[row[question_id] for question_id in pairs["question_id_right"].to_pylist()]]
    cosines = (left * right).sum(axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert np.abs(cosines - pairs["similarity"].to_numpy()).max() < 1e-6


def test_embeddings_are_plain_lists_of_float16_that_other_tools_can_read(run: Run) -> None:
    kind = table(run, "embeddings").schema.field("embedding").type
    assert pa.types.is_fixed_size_list(kind)
    assert kind.value_type == pa.float16()
    assert kind.list_size == 300


def test_every_exact_neighbour_is_there(run: Run) -> None:
    """Against a full sort over the saved embeddings, for some questions."""
    saved = table(run, "embeddings")
    ids, vectors = saved["question_id"].to_numpy(), np.array(saved["embedding"].to_pylist(), np.float64)
    nonzero = np.linalg.norm(vectors, axis=1) > 0
    ids, vectors = ids[nonzero], vectors[nonzero] / np.linalg.norm(vectors[nonzero], axis=1)[:, None]
    pairs = {(left, right) for _, left, _, right in key_pairs(table(run, "pairs"))}
    for row in range(0, len(ids), 50):
        cosines = vectors @ vectors[row]
        cosines[row] = -2
        for best in np.argsort(-cosines)[:9]:  # the tenth may be tied
            assert (min(ids[row], ids[best]), max(ids[row], ids[best])) in pairs


def test_all_planted_copies_and_near_copies_share_a_cluster(metrics: dict) -> None:
    assert metrics["planted"]["copy"]["same_cluster"] == 1
    assert metrics["planted"]["near_copy"]["same_cluster"] == 1


def test_the_encoder_finds_more_rephrasings_than_shingles_do(metrics: dict) -> None:
    found = metrics["planted"]["rephrasing"]
    best_shingles = max(found[f"shingle_jaccard_{size}_at_10_never_trained_on"] for size in (1, 2, 3, 4))
    assert found["encoder_at_10_never_trained_on"] > best_shingles


def test_known_links_are_marked_and_test_questions_were_never_trained_on(
    run: Run, metrics: dict, trained_sample: TrainedSample
) -> None:
    links = pq.read_table(trained_sample.links)
    duplicates = links.filter(pc.equal(links["link_type"], "duplicate"))
    known = {
        tuple(sorted(ends))
        for ends in zip(duplicates["question_id"].to_pylist(), duplicates["related_id"].to_pylist(), strict=True)
    }
    pairs = table(run, "pairs")
    for (_, left, _, right), marked in zip(key_pairs(pairs), pairs["known_link"].to_pylist(), strict=True):
        assert marked == ((left, right) in known)
    split = pq.read_table(Path(trained_sample.encoder) / "split.parquet").to_pandas()
    assert metrics["known_duplicates"]["test_queries"] == (split.part == "test").sum()


def test_the_manifest_tells_rows_seconds_memory_versions_and_limits(run: Run) -> None:
    manifest = storage.read_json(run.path("manifest.json"))
    names = ["texts", "signatures", "near_duplicates", "encode", "neighbours", "clusters", "evaluate"]
    assert [stage["name"] for stage in manifest["stages"]] == names
    for stage in manifest["stages"]:
        assert stage["rows_in"] > 0
        assert stage["rows_out"] > 0
        assert stage["seconds"] > 0
        assert stage["peak_memory_mb"] > 50
    assert set(manifest["versions"]) >= {"python", "ray", "torch", "pyarrow"}
    assert "near_duplicates.bucket_limit" in str(manifest["stages"][2]["caps"])


def test_the_run_is_marked_and_latest_points_at_it(run: Run) -> None:
    assert run.finished
    assert storage.read_json(f"{storage.parent(run.uri)}/latest.json") == {"run_id": run.run_id, "run": run.uri}
    assert "<html" in storage.read_bytes(run.path("report.html")).decode()
    assert run.path("report.html") in summary(run.uri)


def test_a_rerun_does_nothing_twice(run: Run, trained_sample: TrainedSample) -> None:
    before = {file.relative: Path(file.uri).stat().st_mtime_ns for file in storage.list_files(run.uri)}
    again = dedup(job(trained_sample, Path(storage.parent(run.uri))))
    assert again.uri == run.uri
    assert {file.relative: Path(file.uri).stat().st_mtime_ns for file in storage.list_files(run.uri)} == before


def contents(run: Run) -> dict[str, bytes]:
    return {
        f"{name}/{file.relative}": storage.read_bytes(file.uri)
        for name in (*TABLES, "embeddings")
        for file in storage.list_files(run.path(name), ".parquet")
    }


def test_a_run_that_was_cut_off_is_finished_to_the_same_bytes(
    run: Run, trained_sample: TrainedSample, tmp_path: Path
) -> None:
    import shutil

    copy = tmp_path / run.run_id
    shutil.copytree(run.uri, copy)
    for gone in ("_SUCCESS", "metrics.json", "stages/clusters.json", "stages/evaluate.json", "stages/neighbours.json"):
        (copy / gone).unlink()
    lost = ("clusters/part-00001.parquet", "work/neighbours/nearest", "work/neighbours/directed", "pairs")
    for gone in (*lost, "work/members.parquet"):
        shutil.rmtree(copy / gone) if (copy / gone).is_dir() else (copy / gone).unlink()
    finished = dedup(job(trained_sample, tmp_path))
    assert finished.uri == str(copy)
    assert contents(finished) == contents(run)
    assert (copy / "metrics.json").read_bytes() == Path(run.path("metrics.json")).read_bytes()


def sorted_rows(run: Run, name: str, keys: list[str]) -> list[dict]:
    return table(run, name).sort_by([(key, "ascending") for key in keys]).to_pylist()


@pytest.mark.parametrize(("shard_rows", "shards", "actors"), [(5000, 1, 1), (500, 4, 2)])
def test_the_answer_does_not_depend_on_shards_or_workers(
    run: Run, trained_sample: TrainedSample, tmp_path: Path, shard_rows: int, shards: int, actors: int
) -> None:
    ingest(IngestJob((trained_sample.dump,), str(tmp_path), assignments=(f"ingest.shard_rows={shard_rows}",)))
    assert len(storage.list_files(f"{tmp_path}/questions")) == shards
    other = dedup(
        job(
            trained_sample,
            tmp_path / "runs",
            questions=f"{tmp_path}/questions",
            links=f"{tmp_path}/links",
            assignments=(f"encode.actors={actors}", f"neighbours.block_rows={300 * actors}"),
        )
    )
    for name, keys in (
        ("pairs", ["question_id_left", "question_id_right"]),
        ("clusters", ["question_id"]),
        ("cluster_stats", ["cluster_id"]),
        ("embeddings", ["question_id"]),
    ):
        assert sorted_rows(other, name, keys) == sorted_rows(run, name, keys)
    assert storage.read_json(other.path("metrics.json")) == storage.read_json(run.path("metrics.json"))


def test_row_order_and_files_without_links_or_truth_do_not_matter(
    run: Run, trained_sample: TrainedSample, tmp_path: Path
) -> None:
    questions = pq.read_table(trained_sample.questions)
    order = np.random.default_rng(1).permutation(len(questions))
    folder = tmp_path / "questions" / "site=sample.stackexchange.com"
    folder.mkdir(parents=True)
    pq.write_table(questions.take(pa.array(order)).drop_columns(["site"]), folder / "shuffled.parquet")
    other = dedup(DedupJob(str(tmp_path / "questions"), trained_sample.encoder, str(tmp_path / "runs")))
    assert sorted_rows(other, "clusters", ["question_id"]) == sorted_rows(run, "clusters", ["question_id"])
    assert table(other, "pairs")["known_link"].null_count == table(run, "pairs").num_rows
    assert storage.read_json(other.path("metrics.json"))["known_duplicates"] is None


def test_a_run_after_an_earlier_one_gives_the_same_bytes(
    run: Run, trained_sample: TrainedSample, tmp_path: Path
) -> None:
    """The earlier one lacks a thirtieth of the questions."""
    for file in storage.list_files(trained_sample.questions):
        rows = pq.read_table(file.uri)
        kept = rows.filter(pc.not_equal(pc.bit_wise_and(rows["question_id"], 31), 0))
        target = tmp_path / "questions" / file.relative
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(kept, target)
    earlier = tmp_path / "earlier"
    dedup(job(trained_sample, earlier, questions=f"{tmp_path}/questions"))
    later = dedup(job(trained_sample, tmp_path / "later", previous=str(earlier)))
    assert contents(later) == contents(run)
    (stage,) = (stage for stage in later.records if stage["name"] == "neighbours")
    assert 0 < stage["counts"]["questions searched"] < 1000


def test_an_earlier_run_must_be_there_and_finished(trained_sample: TrainedSample, tmp_path: Path) -> None:
    with pytest.raises(DupqError, match="no finished run"):
        job(trained_sample, tmp_path, previous=str(tmp_path / "nowhere")).check()


def test_a_question_that_stands_twice_is_named(trained_sample: TrainedSample, tmp_path: Path) -> None:
    source = storage.list_files(trained_sample.questions)[0].uri
    folder = tmp_path / "questions" / "site=sample.stackexchange.com"
    folder.mkdir(parents=True)
    for name in ("a", "b"):
        (folder / f"{name}.parquet").write_bytes(Path(source).read_bytes())
    first = pq.read_table(source)["question_id"][0]
    with pytest.raises(DupqError, match=rf"sample\.stackexchange\.com/{first} stands more than once"):
        dedup(DedupJob(str(tmp_path / "questions"), trained_sample.encoder, str(tmp_path / "runs")))


def test_settings_that_the_encoder_fixed_cannot_be_changed(trained_sample: TrainedSample, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="fixed when the encoder was trained"):
        job(trained_sample, tmp_path, assignments=("text.code=kept",)).check()


def test_the_evaluation_job_measures_as_the_run_does(
    metrics: dict, trained_sample: TrainedSample, tmp_path: Path
) -> None:
    shown = evaluate(
        EvaluationJob(trained_sample.questions, trained_sample.links, str(tmp_path), trained_sample.encoder)
    )
    assert json.loads((tmp_path / "metrics.json").read_text()) == metrics["known_duplicates"]
    assert "bm25" in shown
    baselines = evaluate(EvaluationJob(trained_sample.questions, trained_sample.links, str(tmp_path / "b")))
    assert "bm25" in baselines
    assert "encoder" not in baselines


def test_the_truth_table_names_a_wrong_line(trained_sample: TrainedSample, tmp_path: Path) -> None:
    header = Path(trained_sample.truth).read_text().splitlines()[0]
    wrong = tmp_path / "truth.tsv"
    wrong.write_text(f"{header}\nsample.stackexchange.com\tx\t1\tcopy\t0\n")
    with pytest.raises(DupqError, match=r"truth\.tsv: line 2"):
        dedup(job(trained_sample, tmp_path, truth=str(wrong)))
