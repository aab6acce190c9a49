"""An archive ranked shard by shard, beside the same one in memory."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracles.slow_rankings import slow_best, slow_bm25, slow_jaccard, stemmed
from run_tables import contents, cut_off

from dupq import storage
from dupq.encoders.build import build
from dupq.encoders.description import read_measure
from dupq.encoders.fitness import Fitness
from dupq.encoders.saved import SavedEncoder, save
from dupq.evaluation.ranked import Archive
from dupq.neighbours.exact import pair_scores
from dupq.runs.embeddings import read_embeddings
from dupq.runs.layout import RankingFiles
from dupq.settings import config
from dupq.stages.encoding.shard import Place, Work, encode_shard
from dupq.stages.evaluation import compared
from dupq.stages.evaluation import ranking as ranking_module
from dupq.stages.evaluation.compared import Ranking
from dupq.stages.evaluation.ranking import measure_ranked
from dupq.tables import TEXTS
from dupq.text.keys import Sites
from dupq.text.vocabulary import Vocabulary

SITES = Sites(["a.example.com"])
WORDS = [f"w{number}" for number in range(50)]
QUESTIONS, K = 40, 7
QUERIES, PAIRS = np.array([3, 8, 11, 20, 39]), (np.array([3, 5, 30, 8]), np.array([8, 20, 5, 39]))
EMPTY = 11


def saved_encoder(folder: Path, title_times: int = 3) -> str:
    """A bag of random word vectors that reads titles so many times."""
    settings = config.load()
    settings = settings.changed(text=settings.text.changed(title_times=title_times))
    vocabulary = Vocabulary(WORDS, settings.text, 0)
    vectors = np.random.default_rng(1).normal(size=(len(vocabulary), 16)).astype(np.float32)
    network = build(settings.encoder, vectors, seed=1)
    network.prepare([vocabulary.ids(word, 512) for word in WORDS], [])
    network.tune(None)
    save(str(folder), SavedEncoder(network.eval(), vocabulary, settings, None, Fitness(0, 0.0, None), {}), "run")
    return str(folder)


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


def ranking_of(folder: Path, encoder: str | None, cuts: list[int], kept: slice = slice(None)) -> Ranking:
    """An archive cut into shards, of each of which the `kept` questions have an embedding."""
    titles, whole = zip(*texts(), strict=True)
    bounds = [0, *cuts, QUESTIONS]
    for number, (start, stop) in enumerate(itertools.pairwise(bounds)):
        name = f"part-{number:05d}.parquet"
        columns = [pa.array(np.arange(start, stop)), pa.array(titles[start:stop]), pa.array(whole[start:stop])]
        storage.write_table(str(folder / "texts" / name), pa.table(columns, schema=TEXTS), TEXTS)
        if encoder is not None:
            made = folder / "embeddings" / name
            work = Work(encoder, encoder, SITES.names, None, 64, gpu=False)
            encode_shard(work, Place(str(folder / "texts" / name), "", str(made)))
            pq.write_table(pq.read_table(made)[kept], made)
    files = RankingFiles(str(folder / "texts"), str(folder / "embeddings"), encoder, str(folder / "work"))
    return Ranking(files, SITES.names, "english")


def everything(archive: Archive) -> dict[str, Any]:
    """All lists and scores of all systems, as JSON has them."""
    assert archive.keys.tolist() == list(range(QUESTIONS))
    return {
        name: {"ranked": ranker.rank(QUERIES, K), "scores": ranker.score(*PAIRS).tolist()}
        for name, ranker in archive.rankers.items()
    }


def measured(ranking: Ranking) -> dict[str, Any]:
    measure_ranked(ranking, everything)
    return storage.read_json(ranking.files.measures)


def test_the_encoder_ranks_the_whole_archive_as_a_sort_of_all_scores_does(tmp_path: Path, encoder: str) -> None:
    ranking = ranking_of(tmp_path, encoder, [9, 25], slice(0, 8))  # of 9, 16 and 15 questions eight have an embedding
    found = measured(ranking)["encoder"]
    ranking_of(tmp_path / "whole", encoder, [])
    embedded = read_embeddings(str(tmp_path / "whole" / "embeddings" / "part-00000.parquet"), SITES)
    measure = read_measure(encoder)
    left, right = (axis.ravel() for axis in np.indices((QUESTIONS, QUESTIONS)))
    scores = pair_scores(measure, embedded.take(left), embedded.take(right)).reshape(QUESTIONS, QUESTIONS)
    others = [key for key in range(QUESTIONS) if key != EMPTY]
    for query, ranked in zip(QUERIES.tolist(), found["ranked"], strict=True):
        order = sorted((key for key in others if key != query), key=lambda key, row=scores[query]: (-row[key], key))
        assert ranked == (order[:K] if query != EMPTY else [])
    assert found["ranked"][0][:2] == [30, 31]
    assert found["scores"] == scores[PAIRS].tolist()


def test_the_baselines_rank_as_a_sort_of_all_scores_does(tmp_path: Path) -> None:
    found, whole = measured(ranking_of(tmp_path, None, [1, 9, 25])), [text for _, text in texts()]
    assert list(found) == ["bm25", *(f"shingle_jaccard_{size}" for size in (1, 2, 3, 4))]
    keys = list(range(QUESTIONS))
    for place, query in enumerate(QUERIES.tolist()):
        scores = slow_bm25([stemmed(text, "english") for text in whole], query)
        assert found["bm25"]["ranked"][place] == slow_best(keys, [round(score, 9) for score in scores], query, K)
        for size in (1, 2, 3, 4):
            expected = slow_best(keys, slow_jaccard(whole, query, size), query, K)
            assert found[f"shingle_jaccard_{size}"]["ranked"][place] == expected
    for place, (left, right) in enumerate(zip(*PAIRS, strict=True)):
        scores = slow_bm25([stemmed(text, "english") for text in whole], left)
        assert found["bm25"]["scores"][place] == pytest.approx(scores[right] / scores[left])
        assert found["shingle_jaccard_2"]["scores"][place] == slow_jaccard(whole, left, 2)[right]


def test_what_is_measured_depends_neither_on_shards_nor_pieces_nor_on_which_questions_have_embeddings(
    tmp_path: Path, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measured(ranking_of(tmp_path / "one", encoder, []))
    monkeypatch.setattr(compared, "_PAIRS_AT_ONCE", 3)
    for place, (cuts, kept) in enumerate((([13], slice(None)), ([1, 2, 39], slice(0, 5)), ([], slice(12)))):
        assert measured(ranking_of(tmp_path / str(place), encoder, cuts, kept)) == whole


def test_only_what_is_asked_for_is_ranked(tmp_path: Path, encoder: str) -> None:
    ranking = ranking_of(tmp_path, encoder, [20])
    measure_ranked(ranking, lambda archive: {"encoder": archive.rankers["encoder"].rank(QUERIES[:1], 1)})
    assert storage.read_json(ranking.files.measures) == {"encoder": [[30]]}
    made = {name.split("/")[0] for name in contents(ranking.files.folder) if "/" in name}
    assert not made & {"bm25", "shingle_jaccard_1"}
    nothing = ranking_of(tmp_path / "nothing", encoder, [20])
    report = measure_ranked(nothing, lambda archive: {"questions": len(archive.keys)})
    assert storage.read_json(nothing.files.measures) == {"questions": QUESTIONS}
    assert report.tasks == 2


def test_what_is_asked_for_and_encoded_for_it_is_counted(tmp_path: Path, encoder: str) -> None:
    report = measure_ranked(ranking_of(tmp_path, encoder, [20], slice(0, 15)), everything)
    assert report.counts == {"questions that others are compared with": 7, "questions encoded to be compared": 10}


def test_an_attempt_that_was_cut_off_anywhere_is_finished_by_the_next_one(tmp_path: Path, encoder: str) -> None:
    whole = measured(ranking_of(tmp_path / "whole", encoder, [20], slice(0, 15)))
    for outputs in range(0, 24, 4):
        ranking = ranking_of(tmp_path / str(outputs), encoder, [20], slice(0, 15))
        cut_off(outputs, measure_ranked, ranking, everything)
        assert measured(ranking) == whole


def test_a_gpu_is_taken_to_encode_and_for_nothing_else(
    tmp_path: Path, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: dict[str, int] = {}
    run_tasks = ranking_module.run_tasks

    def noted(label: str, work: Any, calls: Any, **options: Any) -> Any:
        taken[label] = options.get("gpus", 0)
        return run_tasks(label, work, calls, **options)

    monkeypatch.setattr(ranking_module, "run_tasks", noted)
    measure_ranked(replace(ranking_of(tmp_path, encoder, [20]), gpus=1), everything)  # nothing is left to encode
    assert taken == {"ask": 0, "encode": 1, "read": 0, "gather": 0, "rank": 0, "score": 0, "measure": 0}
