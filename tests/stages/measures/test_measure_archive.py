"""An archive in shards, ranked and scored by each system, beside a sort of all scores."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from random_bag import WORDS, saved_encoder

from dupq import storage
from dupq.encoders.saved import read_measure
from dupq.evaluation.measures import Ranker
from dupq.job.table import Streamed, Table
from dupq.neighbours.embeddings import embeddings_of
from dupq.neighbours.exact import pair_scores
from dupq.stages.embeddings import Embedder, encode_texts
from dupq.stages.measures.archive import Archive, systems
from dupq.tables import TEXTS
from dupq.text.keys import Sites

SITES = Sites(["a.example.com"])
QUESTIONS, K = 40, 7
QUERIES, PAIRS = np.array([3, 8, 11, 20, 39]), (np.array([3, 5, 30, 8]), np.array([8, 20, 5, 39]))
EMPTY = 11


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved_encoder(tmp_path_factory.mktemp("encoder"))


def texts() -> list[tuple[str, str]]:
    """Titles and whole texts, some of them the same; one is empty."""
    random = np.random.default_rng(2)
    made = [tuple(" ".join(random.choice(WORDS, size)) for size in (5, 20)) for _ in range(QUESTIONS)]
    made[30] = made[3]
    made[31] = made[3]
    return [("", "") if key == EMPTY else (title, f"{title} {body}") for key, (title, body) in enumerate(made)]


def archive_of(folder: Path, encoder: str | None, cuts: list[int]) -> Archive:
    """An archive cut into shards."""
    titles, whole = zip(*texts(), strict=True)
    bounds = [0, *cuts, QUESTIONS]
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        name = f"part-{number:05d}.parquet"
        columns = [pa.array(np.arange(start, stop)), pa.array(titles[start:stop]), pa.array(whole[start:stop])]
        some = pa.table(columns, schema=TEXTS)
        storage.write_table(str(folder / "texts" / name), some, TEXTS)
        if encoder is not None:
            deferred = encode_texts(some, None, None, Embedder(encoder, 64, gpu=False), SITES.names, None)
            rows = deferred.finish(deferred.compute()).table
            storage.write_table(str(folder / "embeddings" / name), rows, rows.schema)
    made, embedded = (Table(str(folder / name), None, len(bounds) - 1) for name in ("texts", "embeddings"))
    return Archive(made, encoder and (encoder, embedded), SITES, "", are_labelled=False)


def measured(archive: Archive) -> dict[str, Any]:
    """All lists and scores of all systems."""
    return {
        name: {
            "ranked": system.rank(QUERIES, K) if isinstance(system, Ranker) else None,
            "scores": system.score(*PAIRS).tolist(),
        }
        for name, system in systems(Streamed(archive.texts), archive, "english").items()
    }


def test_the_encoder_ranks_the_whole_archive_as_a_sort_of_all_scores_does(tmp_path: Path, encoder: str) -> None:
    found = measured(archive_of(tmp_path, encoder, [9, 25]))["encoder"]
    archive_of(tmp_path / "whole", encoder, [])
    uri = str(tmp_path / "whole" / "embeddings" / "part-00000.parquet")
    embedded = embeddings_of(storage.read_table(uri), SITES, uri)
    measure = read_measure(encoder)
    left, right = (axis.ravel() for axis in np.indices((QUESTIONS, QUESTIONS)))
    scores = pair_scores(measure, embedded.take(left), embedded.take(right)).reshape(QUESTIONS, QUESTIONS)
    others = [key for key in range(QUESTIONS) if key != EMPTY]
    for query, ranked in zip(QUERIES.tolist(), found["ranked"], strict=True):
        order = sorted((key for key in others if key != query), key=lambda key, row=scores[query]: (-row[key], key))
        assert ranked == (order[:K] if query != EMPTY else [])
    assert found["ranked"][0][:2] == [30, 31]
    assert found["scores"] == scores[PAIRS].tolist()


def test_what_is_measured_does_not_depend_on_shards(tmp_path: Path, encoder: str) -> None:
    whole = measured(archive_of(tmp_path / "one", encoder, []))
    for place, cuts in enumerate(([13], [1, 2, 39])):
        assert measured(archive_of(tmp_path / str(place), encoder, cuts)) == whole
    alone = measured(archive_of(tmp_path / "alone", None, [1, 9, 25]))
    assert list(alone) == ["bm25", *(f"shingle_jaccard_{size}" for size in (1, 2, 3, 4))]
    assert alone == {name: whole[name] for name in alone}
    assert alone["bm25"]["ranked"][0][:2] == [30, 31]
