"""The map for Embedding Atlas: its columns, as the tool reads them with pandas, and what they say."""

import numpy as np
import pandas as pd
import pytest
from embedded_run import HIGHEST, build_embedded_run
from fabricated_run import COPIES, CS, LARGE, PAIR, QUESTIONS, TITLES, TRIPLE, cluster_id
from sklearn.decomposition import PCA

from dupq import storage
from dupq.api.runs import open_run
from dupq.errors import DupqError
from dupq.export.formats import export


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_embedded_run(str(tmp_path_factory.mktemp("run")))


@pytest.fixture(scope="module")
def frame(run: str, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    (written,) = export(run, "embedding-atlas", str(tmp_path_factory.mktemp("atlas") / "out"))
    assert written.note.startswith("1 questions have no point")
    made = pd.read_parquet(written.uri)
    assert len(made) == written.rows
    return made


def keys_of(frame: pd.DataFrame) -> list[tuple[str, int]]:
    return list(zip(frame["site"], frame["question_id"], strict=True))


def test_each_question_that_has_an_embedding_is_a_row(frame: pd.DataFrame) -> None:
    assert sorted(keys_of(frame)) == sorted(key for key in QUESTIONS if key != COPIES[1])


def test_a_row_tells_what_the_question_is(frame: pd.DataFrame) -> None:
    rows = dict(zip(keys_of(frame), frame.to_dict("records"), strict=True))
    for key, row in rows.items():
        title = TITLES.get(key, f"Question {key[1]} about {key[0].split('.')[0]}")
        assert (row["title"], row["text"], row["score"]) == (title, title, key[1] - 3)
    assert rows[TRIPLE[1]]["cluster_id"] == cluster_id(TRIPLE)
    assert rows[TRIPLE[1]]["cluster_size"] == 3
    assert rows[CS, 40]["url"] == f"https://{CS}/questions/40"
    assert pd.isna(rows[COPIES[0]]["url"])  # whose site is no host name


def test_neighbours_are_numbers_of_rows_with_distances(frame: pd.DataFrame) -> None:
    keys = keys_of(frame)
    for left, right in [(TRIPLE[0], TRIPLE[1]), (PAIR[0], PAIR[1])]:
        row = frame["neighbors"][keys.index(left)]
        assert set(row) == {"ids", "distances"}
        assert keys.index(right) in row["ids"]
    similarity = 2 - 0.91
    assert frame["neighbors"][keys.index(PAIR[0])]["distances"] == pytest.approx([1 - similarity / HIGHEST])
    assert len(frame["neighbors"][keys.index(LARGE[0])]["ids"]) == 0  # near duplicates only


def test_points_are_the_principal_components(run: str, frame: pd.DataFrame) -> None:
    embeddings = open_run(run).embeddings.pandas()
    expected = PCA(2, svd_solver="full").fit_transform(np.stack(embeddings["embedding"]).astype(np.float64))
    places = {key: place for place, key in enumerate(keys_of(frame))}
    order = [places[key] for key in keys_of(embeddings)]
    assert np.abs(frame[["x", "y"]].to_numpy()[order]) == pytest.approx(np.abs(expected), abs=1e-5)


def test_the_same_run_gives_the_same_bytes(run: str, tmp_path) -> None:
    made = [export(run, "embedding-atlas", str(tmp_path / name))[0].uri for name in ("one", "two")]
    assert storage.read_bytes(made[0]) == storage.read_bytes(made[1])


def test_a_question_that_is_gone_since_is_no_row(tmp_path) -> None:
    run = build_embedded_run(str(tmp_path))
    storage.delete(f"{tmp_path}/questions/site={CS}/part-00001.parquet")
    (written,) = export(run, "embedding-atlas", str(tmp_path / "out"))
    made = pd.read_parquet(written.uri)
    assert len(made) == len(QUESTIONS) - 20 - 1
    assert all(0 <= number < len(made) for row in made["neighbors"] for number in row["ids"])


def test_without_embeddings_it_says_what_to_do(tmp_path) -> None:
    run = build_embedded_run(str(tmp_path))
    storage.delete_folder(f"{run}/embeddings")
    with pytest.raises(DupqError, match=r"has no embeddings, .* make the run again .* or export it --to graphml"):
        export(run, "embedding-atlas", str(tmp_path / "out"))


def test_without_the_encoder_it_says_so(tmp_path) -> None:
    run = build_embedded_run(str(tmp_path))
    storage.delete_folder(f"{tmp_path}/encoder")
    with pytest.raises(DupqError, match="encoder"):
        export(run, "embedding-atlas", str(tmp_path / "out"))
