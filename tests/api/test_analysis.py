"""What analysts ask of runs: nights beside each other, titles, links, verdicts."""

from pathlib import Path

import pandas as pd
import pytest
from fabricated_run import BAD_SITE, build_run

import dupq
from dupq import storage
from dupq.errors import DupqError
from dupq.runs.queries import estimated


def test_the_runs_of_a_folder_are_opened_oldest_first(small_runs) -> None:
    runs = dupq.open_runs(storage.parent(small_runs.strict))
    assert [run.uri for run in runs] == [small_runs.strict]
    assert runs[0].finished < dupq.open_run(small_runs.loose).finished
    with pytest.raises(DupqError, match="no whole run is here"):
        dupq.open_runs(small_runs.folder)


def test_what_changed_between_two_runs_is_what_another_threshold_changes(small_runs) -> None:
    strict, loose = dupq.open_run(small_runs.strict), dupq.open_run(small_runs.loose)
    columns = ["kind", "previous_cluster_id", "size", "previous_size", "shared"]  # ids of now are carried by `at` only
    found = loose.changes_since(strict).arrow(columns).to_pylist()
    expected = strict.at(small_runs.LOW).changes.arrow(columns).to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert found
    assert len(strict.changes_since(strict)) == 0


def test_titles_and_addresses_are_put_beside_pairs(tmp_path: Path) -> None:  # of questions: test_given
    run = dupq.open_run(build_run(str(tmp_path)))
    assert run.with_titles(pd.DataFrame({"site": [BAD_SITE], "question_id": [1]}))["link"].isna().all()
    both = run.with_titles(run.pairs.pandas(filter=[("probability", "=", run.pairs.pandas()["probability"].min())]))
    assert both["title_left"].tolist() == [f"Question {both['question_id_left'][0]} about cs"]
    assert {"title_right", "link_left", "link_right"} <= set(both)
    assert "title" not in both


def test_links_are_those_of_the_archive(small_runs, tmp_path: Path) -> None:
    run = dupq.open_run(small_runs.strict)
    links = run.links.arrow(["site", "question_id", "related_id"], [("link_type", "=", "duplicate")])
    assert len(links) > 10
    manifest = storage.read_json(f"{build_run(str(tmp_path))}/manifest.json")
    storage.write_json(f"{tmp_path}/runs/fabricated/manifest.json", {**manifest, "inputs": {"questions": "x"}})
    with pytest.raises(DupqError, match="without --links"):
        dupq.open_run(f"{tmp_path}/runs").links  # noqa: B018


def test_verdicts_tell_of_a_run_what_a_later_run_would_be_told(small_runs, tmp_path: Path) -> None:
    run = dupq.open_run(small_runs.strict)
    sheet = run.review.pandas()
    rows = [line.split("\t") for line in (Path(run.uri) / "review.tsv").read_text().splitlines()]
    assert sheet["question_id_left"].astype(str).tolist() == [row[2] for row in rows[1:]]
    assert sheet["title_left"].notna().all()
    assert sheet["verdict"].isna().all()
    sheet["verdict"] = ["same" if joined else "different" for joined in sheet["joined"]]
    sheet.loc[0, "verdict"] = "unsure"
    sheet.loc[1, "verdict"] = None
    of_table = run.judged(sheet)
    for row, verdict in zip(rows[1:], sheet["verdict"].fillna(""), strict=True):
        row[rows[0].index("verdict")] = verdict
    place = tmp_path / "review.tsv"
    place.write_text("\n".join("\t".join(row) for row in rows) + "\n")
    assert run.judged(str(place)) == of_table
    told = estimated(str(place), storage.parent(run.uri))
    assert told["precision"] == of_table.precision._asdict()
    assert (told["judged"], told["unsure"]) == (of_table.judged, of_table.unsure) == (len(sheet) - 2, 1)


def test_what_is_no_verdict_is_an_error(small_runs, tmp_path: Path) -> None:
    run = dupq.open_run(small_runs.strict)
    with pytest.raises(DupqError, match="no column 'verdict'"):
        run.judged(run.review.pandas().drop(columns="verdict"))
    with pytest.raises(DupqError, match="verdict 'maybe'; same, different or unsure expected"):
        run.judged(run.review.pandas().assign(verdict="maybe"))
    with pytest.raises(DupqError, match="no sample to judge"):
        dupq.open_run(build_run(str(tmp_path))).judged(pd.DataFrame())
