import dataclasses

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from trained import TrainedSample


@pytest.fixture(autouse=True)
def _quick(quick: None) -> None:
    """In all tests of this folder."""


@pytest.fixture(scope="session")
def small(trained_sample: TrainedSample, tmp_path_factory: pytest.TempPathFactory) -> TrainedSample:
    """300 of its questions in two shards, those with links first: for what changes no more than an argument."""
    links, questions = pq.read_table(trained_sample.links), pq.read_table(trained_sample.questions)
    ends = pa.concat_arrays([links[name].combine_chunks() for name in ("question_id", "related_id")])
    linked_first = pc.array_sort_indices(pc.is_in(questions["question_id"], value_set=ends), order="descending")
    chosen = questions.take(linked_first.slice(0, 300)).sort_by("question_id").drop_columns(["site"])
    archive = tmp_path_factory.mktemp("small")
    folder = archive / "questions" / "site=sample.stackexchange.com"
    folder.mkdir(parents=True)
    for number in range(2):
        pq.write_table(chosen.slice(150 * number, 150), folder / f"part-0000{number}.parquet")
    truth = pd.read_csv(trained_sample.truth, sep="\t")
    is_there = truth[["question_id", "related_id"]].isin(chosen["question_id"].to_pylist()).all(axis=1)
    truth[is_there].to_csv(archive / "truth.tsv", sep="\t", index=False)
    return dataclasses.replace(trained_sample, questions=f"{archive}/questions", truth=f"{archive}/truth.tsv")
