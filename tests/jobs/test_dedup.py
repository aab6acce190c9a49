"""The whole job on the sample archive."""

import json
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from inline import without_ray
from trained import TrainedSample

from dupq import storage
from dupq.errors import GateError, LeaseError
from dupq.job import lease
from dupq.job.run import Run
from dupq.pipelines.dedup import DedupJob, dedup
from dupq.pipelines.gates import Gates
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.settings.sections import CalibrationSettings

WORK = "run.keep_work=true"  # some tests look at it
JOINING = "clusters.threshold=0.25"  # of the small runs
TABLES = ("pairs", "clusters", "cluster_stats")


def job(sample: TrainedSample, output: Path, **changes: object) -> DedupJob:
    values = {"questions": sample.questions, "links": sample.links, "truth": sample.truth, **changes}
    return DedupJob(encoder=sample.encoder, output=str(output), **values)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
@without_ray()
def run(trained_sample: TrainedSample, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return dedup(job(trained_sample, tmp_path_factory.mktemp("runs"), assignments=(WORK,)))


@pytest.fixture(scope="module")
@without_ray()
def joining(run: Run, trained_sample: TrainedSample) -> Run:
    """A run with a threshold at which some hundred pairs of the encoder join: at the usual one hardly any do here."""
    pairs = table(run, "pairs")
    probabilities = pairs.filter(pc.equal(pairs["source"], "encoder"))["probability"].to_numpy()
    threshold = float(np.quantile(probabilities, 0.985))
    output = Path(storage.parent(run.uri)).parent / "joining"
    return dedup(job(trained_sample, output, assignments=(WORK, f"clusters.threshold={threshold}")))


@pytest.fixture(scope="module")
@without_ray()
def small_run(small_sample: TrainedSample, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with a threshold at which a few dozen pairs of the encoder join."""
    return dedup(job(small_sample, tmp_path_factory.mktemp("runs"), assignments=(WORK, JOINING)))


def threshold_of(run: Run) -> str:
    """Return the threshold of a run as an assignment."""
    return f"clusters.threshold={storage.read_json(run.path('config.json'))['clusters']['threshold']}"


@pytest.fixture(scope="module")
def metrics(run: Run) -> dict:
    return storage.read_json(run.path("metrics.json"))


def table(run: Run, name: str) -> pa.Table:
    return pq.read_table(run.path(name))


def key_pairs(pairs: pa.Table) -> list[tuple]:
    columns = ("site_left", "question_id_left", "site_right", "question_id_right")
    return list(zip(*(pairs[column].to_pylist() for column in columns), strict=True))


def test_pairs_hold_none_twice_none_with_itself_and_the_smaller_key_left(run: Run) -> None:
    pairs = key_pairs(table(run, "pairs"))
    assert len(pairs) == len(set(pairs)) > 1000
    assert all((site, left) < (other, right) for site, left, other, right in pairs)


def sure(pairs: pa.Table, metrics: dict) -> pa.Table:
    """Return the pairs that may join: verified ones, and the encoder's above the threshold."""
    probable = pc.greater_equal(pairs["probability"], pa.scalar(metrics["threshold"], pa.float32()))
    return pairs.filter(pc.or_(pc.not_equal(pairs["source"], "encoder"), probable))


def groups(run: Run) -> list[list[int]]:
    """Return the clusters of two and more questions."""
    clusters = table(run, "clusters").to_pandas()
    found = clusters[clusters.cluster_size > 1].groupby("cluster_id").question_id.agg(sorted).tolist()
    return sorted(found)


def test_clusters_lie_in_components_of_pairs_that_may_join_and_hold_all_verified_pairs(
    joining: Run, trained_sample: TrainedSample
) -> None:
    import networkx as nx

    run, metrics = joining, storage.read_json(joining.path("metrics.json"))
    pairs = table(run, "pairs")
    graph = nx.Graph([(left, right) for _, left, _, right in key_pairs(sure(pairs, metrics))])
    clusters = table(run, "clusters").to_pandas()
    assert sorted(clusters.question_id) == sorted(pq.read_table(trained_sample.questions)["question_id"].to_pylist())
    cluster_of = dict(zip(clusters.question_id, clusters.cluster_id, strict=True))
    assert all(nx.node_connected_component(graph, group[0]) >= set(group) for group in groups(run))
    together = [cluster_of[left] == cluster_of[right] for _, left, _, right in key_pairs(pairs)]
    assert pairs["joined"].to_pylist() == together
    verified = pairs.filter(pc.is_in(pairs["source"], pa.array(["exact", "near_duplicate"])))
    assert len(verified) > 100
    assert pc.all(verified["joined"]).as_py()
    canonical = clusters[clusters.is_canonical]
    assert canonical.cluster_id.is_unique
    assert set(canonical.cluster_id) == set(clusters.cluster_id)
    assert (clusters.cluster_size == clusters.groupby("cluster_id").question_id.transform("size")).all()
    assert (clusters.canonical_reason.isna() == (clusters.cluster_size == 1)).all()
    assert set(clusters.threshold) == {np.float32(metrics["threshold"])}


def test_metrics_tell_the_threshold_and_what_is_expected_of_it(run: Run, metrics: dict) -> None:
    pairs = table(run, "pairs")
    probabilities = pairs.filter(pc.equal(pairs["source"], "encoder"))["probability"].to_numpy()
    above = probabilities[probabilities >= np.float32(metrics["threshold"])]
    assert metrics["encoder_pairs_above_threshold"] == len(above)
    joined = pairs.filter(pc.and_(pc.equal(pairs["source"], "encoder"), pairs["joined"]))["probability"].to_numpy()
    assert metrics["encoder_pairs_joined"] == len(joined)
    assert metrics["expected_right"] == pytest.approx(joined.sum(dtype=np.float64))
    assert (metrics["encoder_pairs"], metrics["clusters"]) == (len(probabilities), len(groups(run)))
    chosen, wanted = metrics["thresholds"][0], CalibrationSettings().precision
    assert (chosen["precision"], chosen["threshold"], chosen["pairs"]) == (wanted, metrics["threshold"], len(above))
    if len(above):
        assert chosen["expected_precision"] == pytest.approx(above.astype(np.float64).mean())
        assert chosen["expected_precision"] >= wanted - 1e-6
    others = metrics["thresholds"][1:]
    assert [row["precision"] for row in others] == [0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
    assert sorted(row["threshold"] for row in others) == [row["threshold"] for row in others]
    assert metrics["calibration"]["development_links"] > 0
    assert 0 < metrics["calibration"]["own_share"] < 1


def test_pairs_are_as_probable_as_where_the_run_was_calibrated(run: Run) -> None:
    """Although calibration gathers the evidence from a sample's lists, and `pairs` from all pairs, by partition."""
    sampled = pq.read_table(run.path("work", "calibration", "pairs", "part-00000.parquet"))
    pairs = table(run, "pairs")
    pairs = pairs.filter(pc.equal(pairs["source"], "encoder"))
    found = dict(zip(key_pairs(pairs), pairs["probability"].to_pylist(), strict=True))
    p = [found[pair] for pair in key_pairs(sampled)]
    assert len(set(p)) > 1000
    assert p == pytest.approx(sampled["probability"].to_pylist(), abs=1e-6)


def test_similarities_are_the_cosines_of_the_saved_embeddings_which_any_tool_can_read(run: Run) -> None:
    saved = table(run, "embeddings")
    assert saved.schema.field("embedding").type == pa.list_(pa.float16(), 100)
    vectors = np.array(saved["embedding"].to_pylist(), np.float64)
    row = {question_id: index for index, question_id in enumerate(saved["question_id"].to_pylist())}
    pairs = table(run, "pairs")
    pairs = pairs.filter(pc.equal(pairs["source"], "encoder"))
    left = vectors[[row[question_id] for question_id in pairs["question_id_left"].to_pylist()]]
    right = vectors[[row[question_id] for question_id in pairs["question_id_right"].to_pylist()]]
    cosines = (left * right).sum(axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert np.abs(cosines - pairs["similarity"].to_numpy()).max() < 1e-6


def test_all_planted_copies_and_near_copies_share_a_cluster(metrics: dict) -> None:
    assert metrics["planted"]["copy"]["same_cluster"] == 1
    assert metrics["planted"]["near_copy"]["same_cluster"] == 1


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
    tested = set(split.question_id[split.part == "test"])
    assert metrics["links"]["test_links"] == sum(tested >= {*pair} for pair in known)


def test_the_manifest_tells_rows_seconds_memory_versions_and_limits(joining: Run) -> None:
    manifest = storage.read_json(joining.path("manifest.json"))
    names = ["inputs", "texts", "terms", "signatures", "near_duplicates", "fitness", "encode", "neighbours"]
    names += ["calibrate", "beyond_lists", "pairs", "partition", "clusters", "evaluate", "review"]
    assert [stage["name"] for stage in manifest["stages"]] == names
    for stage in manifest["stages"]:
        assert stage["rows_in"] > 0
        assert stage["rows_out"] > 0 or stage["name"] in ("partition", "beyond_lists")  # pairs that may join, or none
        if stage["name"] != "beyond_lists":  # nothing to do where no score makes half of the pairs duplicates
            assert stage["seconds"] > 0
            assert stage["peak_memory_mb"] > 50
        assert not [path for path in stage["outputs"] if "/tiles/" in path]  # 150,000 files at 24 million questions
    steps = {stage["name"]: set(stage["steps"]) for stage in manifest["stages"]}
    assert steps["pairs"] == {"candidates", "wanted", "terms", "compared", "listed", "around", "around_for", "scored"}
    assert set(manifest["versions"]) >= {"python", "ray", "torch", "pyarrow"}
    assert "buckets over" in str(manifest["stages"][names.index("near_duplicates")]["caps"])


def test_a_finished_run_that_misses_a_gate_is_not_named_as_the_latest(
    run: Run, trained_sample: TrainedSample, tmp_path: Path
) -> None:
    shutil.copytree(run.uri, tmp_path / run.run_id)
    with pytest.raises(GateError, match="succeeded before"):
        dedup(job(trained_sample, tmp_path, assignments=(WORK,), gates=Gates(max_cluster=0)))
    assert not (tmp_path / "latest.json").exists()
    dedup(job(trained_sample, tmp_path, assignments=(WORK,)))
    assert storage.read_json(f"{tmp_path}/latest.json")["run_id"] == run.run_id


def test_a_finished_run_is_rid_of_the_work_that_nothing_needs(
    run: Run, trained_sample: TrainedSample, tmp_path: Path
) -> None:
    shutil.copytree(run.uri, tmp_path / run.run_id)
    again = dedup(job(trained_sample, tmp_path))
    assert again.uri == str(tmp_path / run.run_id)  # what is kept is no part of its identity
    assert {path.name for path in (tmp_path / run.run_id / "work").iterdir()} == {
        *("calibration", "contents", "neighbours", "signatures", "terms", "texts")
    }
    kept = {path.name for path in (tmp_path / run.run_id / "work" / "neighbours").iterdir()}
    assert kept == {"nearest"}
    assert contents(again) == contents(run)


def test_what_a_finished_run_lacks_of_its_end_is_done_only_under_its_lease(
    run: Run, trained_sample: TrainedSample, tmp_path: Path
) -> None:
    place = tmp_path / run.run_id
    shutil.copytree(run.uri, place)
    again = job(trained_sample, tmp_path)
    with lease.held(str(place)), pytest.raises(LeaseError):
        dedup(again)  # latest.json is not there
    assert not (tmp_path / "latest.json").exists()
    assert (place / "work" / "neighbours" / "directed").exists()
    dedup(again)
    assert not (place / "work" / "neighbours" / "directed").exists()
    latest = (tmp_path / "latest.json").read_bytes()
    for lost in (lambda: (tmp_path / "latest.json").unlink(), lambda: (place / "work" / "left").write_text("over")):
        lost()
        with lease.held(str(place)), pytest.raises(LeaseError):
            dedup(again)
        dedup(again)
        assert (tmp_path / "latest.json").read_bytes() == latest
        assert not (place / "work" / "left").exists()
    with lease.held(str(place)):
        dedup(again)  # there is nothing to do


def contents(run: Run) -> dict[str, bytes]:
    return {
        f"{name}/{file.relative}": storage.read_bytes(file.uri)
        for name in (*TABLES, "embeddings")
        for file in storage.list_files(run.path(name), ".parquet")
    }


SORTED_BY = {
    "pairs": ["question_id_left", "question_id_right"],
    "clusters": ["question_id"],
    "cluster_stats": ["cluster_id"],
    "worklist": ["rank"],
    "embeddings": ["question_id"],
}


def sorted_rows(run: Run, name: str, keys: list[str]) -> list[dict]:
    return table(run, name).sort_by([(key, "ascending") for key in keys]).to_pylist()


@pytest.mark.ray
def test_the_answer_does_not_depend_on_shards_or_workers(
    joining: Run, trained_sample: TrainedSample, tmp_path: Path
) -> None:
    ingest(IngestJob((trained_sample.dump,), str(tmp_path), assignments=("ingest.shard_rows=300",)))
    assert len(storage.list_files(f"{tmp_path}/questions")) == 4
    tables = {name: f"{tmp_path}/{name}" for name in ("questions", "links")}
    given = ("encode.actors=2", "neighbours.block_rows=600", threshold_of(joining))
    other = dedup(job(trained_sample, tmp_path / "runs", **tables, assignments=given))
    for name, keys in SORTED_BY.items():
        assert sorted_rows(other, name, keys) == sorted_rows(joining, name, keys)
    assert storage.read_json(other.path("metrics.json")) == storage.read_json(joining.path("metrics.json"))


def test_row_order_does_not_matter_and_links_that_are_ignored_are_as_good_as_none(
    small_sample: TrainedSample, tmp_path: Path
) -> None:
    questions = pq.read_table(small_sample.questions)
    order = np.random.default_rng(1).permutation(len(questions))
    folder = tmp_path / "questions" / "site=sample.stackexchange.com"
    folder.mkdir(parents=True)
    pq.write_table(questions.take(pa.array(order)).drop_columns(["site"]), folder / "shuffled.parquet")
    other = dedup(DedupJob(str(tmp_path / "questions"), small_sample.encoder, str(tmp_path / "runs")))
    ignoring = dedup(job(small_sample, tmp_path / "runs", assignments=("clusters.known_links=ignore",)))
    for name, keys in SORTED_BY.items():
        assert sorted_rows(other, name, keys) == sorted_rows(ignoring, name, keys)
    assert table(other, "pairs")["known_link"].null_count == table(other, "pairs").num_rows > 1000
    for without in (other, ignoring):
        found = storage.read_json(without.path("metrics.json"))
        assert found["links"] is None
        assert (found["calibration"]["development_links"], found["calibration"]["own_share"]) == (0, 0)


def test_links_that_are_used_join_and_a_threshold_and_a_prior_may_be_given(
    small_sample: TrainedSample, tmp_path: Path
) -> None:
    prior = json.loads((files("dupq") / "clusters" / "prior.json").read_text())
    (tmp_path / "prior.json").write_text(json.dumps(prior | {"sites": ["elsewhere.example.com"]}))
    given = ("clusters.known_links=use", "clusters.threshold=0.5", f"calibration.prior={tmp_path}/prior.json")
    used = dedup(job(small_sample, tmp_path, assignments=given))
    links = pq.read_table(small_sample.links).to_pandas()
    clusters = table(used, "clusters").to_pandas().set_index("question_id")
    links = links[(links.link_type == "duplicate") & links.question_id.isin(clusters.index)]
    assert len(links) > 40
    ends = [clusters.cluster_id[links[side]].tolist() for side in ("question_id", "related_id")]
    assert ends[0] == ends[1]
    assert set(clusters.canonical_reason.dropna()) >= {"known links"}
    pairs = table(used, "pairs")
    beside = pairs.filter(pc.equal(pairs["source"], "known_link"))
    assert pc.all(beside["joined"]).as_py() is not False
    assert pc.all(beside["known_link"]).as_py() is not False
    metrics = storage.read_json(used.path("metrics.json"))
    assert metrics["threshold"] == 0.5
    assert metrics["links"]["in_one_cluster"] is None  # by construction it would be 1
    assert metrics["links"]["in_pairs"] > 0
    assert metrics["calibration"]["prior_sites"] == ["elsewhere.example.com"]


def test_a_shard_that_is_skipped_is_counted_and_makes_another_run(small_run: Run, small_sample: TrainedSample) -> None:
    skipped = storage.list_files(small_sample.questions, ".parquet")[0].relative
    other = dedup(
        job(small_sample, Path(storage.parent(small_run.uri)), skipped=(skipped,), assignments=(WORK, JOINING))
    )
    manifest = storage.read_json(other.path("manifest.json"))
    assert manifest["inputs"]["skipped_shards"] == skipped
    [texts] = [stage for stage in manifest["stages"] if stage["name"] == "texts"]
    assert texts["caps"]["shards of questions left out by --skip-shard"] == 1
    assert "left out by --skip-shard" in storage.read_bytes(other.path("report.html")).decode()
    left = pq.read_table(f"{small_sample.questions}/{skipped}", columns=["question_id"])["question_id"].to_pylist()
    assert table(other, "clusters").num_rows == table(small_run, "clusters").num_rows - len(left)
    assert other.run_id != small_run.run_id
