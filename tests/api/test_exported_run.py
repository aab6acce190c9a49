"""A real run exported to Embedding Atlas: the neighbours on the map are those that the search wrote."""

from pathlib import Path

import pyarrow.parquet as pq

from dupq import storage, tables
from dupq.export import export
from dupq.runs.reader import open_run
from dupq.text.keys import Sites


def test_neighbours_on_the_map_are_those_of_the_search(small_runs, tmp_path: Path) -> None:
    run = open_run(small_runs.strict)
    export(run.uri, "embedding-atlas", str(tmp_path / "out"))
    rows = pq.read_table(tmp_path / "out" / "questions.parquet")
    keys = Sites(sorted(run.metrics["sites"])).pack_columns(rows["site"], rows["question_id"], "here").tolist()
    lists = {}
    for file in storage.list_files(f"{run.uri}/work/neighbours/nearest", ".parquet"):
        for row in storage.read_table(file.uri, tables.NEAREST).to_pylist():
            lists[row["key"]] = row["neighbours"]
    assert len(lists) == len(keys) > 100
    for key, neighbours in zip(keys, rows["neighbors"].to_pylist(), strict=True):
        assert [keys[row] for row in neighbours["ids"]] == lists[key]
        assert neighbours["distances"] == sorted(neighbours["distances"])
        assert all(0 <= distance <= 1 for distance in neighbours["distances"])
