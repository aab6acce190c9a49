"""What is measured of a system on a small archive, beside the same by hand."""

from pathlib import Path

import numpy as np
import pytest
from trained import TrainedSample

from dupq.errors import DupqError
from dupq.evaluation.measures import best_threshold
from dupq.settings.config import Settings
from dupq.text.questions import FIRST_WORD
from dupq.training.word_vectors import WordVectors
from dupq_papers.data.examples import ExampleSettings
from dupq_papers.data.semeval_scores import reranked
from dupq_papers.experiments import data_sets, fitting, measuring, word_vectors
from dupq_papers.experiments.data_sets import candidates_of, parts_of
from dupq_papers.experiments.measuring import measure
from dupq_papers.experiments.rows import PRESET, Part, VectorSource, source_of
from dupq_papers.experiments.samples import evenly, some_queries
from dupq_papers.experiments.settings import limits_of, settings_of
from dupq_papers.experiments.sources import Source, folder_source, sites_of


@pytest.fixture(scope="module")
def source(small_sample: TrainedSample) -> Source:
    return sites_of(small_sample.questions, small_sample.links).sources[0]


def part(source: Source, task: str, system: str, *changes: str) -> Part:
    return Part(source.name, None, task, system, (), changes, "own", "own", 0, True)  # type: ignore[arg-type]


def measured(source: Source, task: str, system: str, *changes: str) -> dict:
    def vectors(of: VectorSource, settings: Settings) -> WordVectors:
        return word_vectors.learned(data_sets.read(source, settings.text).collection, settings)

    return measure(part(source, task, system, *changes), {source.name: source}, vectors)


def test_pairs_are_called_by_the_threshold_of_the_training_part(source: Source) -> None:
    found = measured(source, "pairs", "shingles 1")
    one = part(source, "pairs", "shingles 1")
    data = data_sets.read(source, settings_of(one, source).text)
    parts = parts_of(data, limits_of(one))

    def scores(pairs) -> np.ndarray:
        words = [set(text.split()) for text in data.collection.texts.to_pylist()]
        rows = data.collection.rows(pairs.left), data.collection.rows(pairs.right)
        either = [words[left] | words[right] for left, right in zip(*rows, strict=True)]
        both = [words[left] & words[right] for left, right in zip(*rows, strict=True)]
        return np.array([len(b) / len(e) if e else 0.0 for b, e in zip(both, either, strict=True)])

    training = parts.examples.training
    threshold = best_threshold(scores(training), training.labels)
    is_right = (scores(parts.test) >= threshold) == (parts.test.labels > 0.5)
    assert found["values"]["test_accuracy"] == pytest.approx(is_right.mean())
    assert found["each"]["test_accuracy"] == is_right.astype(float).tolist()
    assert found["sizes"]["test_pairs"] == len(parts.test.labels)


def test_a_data_set_with_too_few_known_pairs_says_how_many(tmp_path: Path) -> None:
    lines = ["a b\tc d\t1", "e f\tg h\t1"]
    (tmp_path / "pairs.tsv").write_text("\n".join(["question1\tquestion2\tduplicate", *lines, ""]))
    with pytest.raises(DupqError, match="too few known pairs: 0 duplicates and 0 others to learn from"):
        measured(folder_source(str(tmp_path)), "ranking", "bm25")


def test_values_are_the_means_of_what_each_query_has(source: Source) -> None:
    found = measured(source, "ranking", "bm25")
    assert set(found["parameters"]) == {"k1", "b"}
    for name, values in found["each"].items():
        assert len(values) == found["sizes"]["test_queries"]
        assert found["values"][name] == pytest.approx(np.mean(values))
    assert 0 < found["values"]["accuracy_at_1"] <= found["values"]["accuracy_at_10"]


@pytest.mark.parametrize(
    ("task", "system", "changes", "share"),
    [
        ("ranking", "bm25", (), 0),
        ("pairs", "shingles 1", (), 1),
        ("ranking", "tlm", (), 0.5),
        ("ranking", f"{PRESET}arora-sif", ("text.tokens=words", "text.parts_of_speech=all"), 0),
        ("ranking", f"{PRESET}mappsent", ("text.tokens=words", "text.parts_of_speech=all"), 0.5),
        ("ranking", f"{PRESET}mappsent", ("text.tokens=words", "encoder.mapping=none"), 0),
    ],
)
def test_training_pairs_are_those_that_were_learned_from(
    source: Source, task: str, system: str, changes: tuple[str, ...], share: float
) -> None:
    small = ("word_vectors.dimensions=8", "word_vectors.algorithm=random") if system.startswith(PRESET) else ()
    found = measured(source, task, system, *changes, *small)
    data = data_sets.read(source, settings_of(part(source, task, system, *changes), source).text)
    labels = parts_of(data, limits_of(part(source, task, system))).examples.training.labels
    assert found["sizes"]["training_pairs"] == share * len(labels)


def test_an_svm_has_learned_from_no_more_pairs_than_it_can(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_SVM_PAIRS", 21)
    assert measured(source, "pairs", "svm")["sizes"]["training_pairs"] == 20


def test_what_limits_left_out_is_counted(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "limits_of", lambda _: ExampleSettings(training_pairs=20, queries=5))
    found = measured(source, "ranking", "bm25")
    assert found["sizes"]["test_queries"] == 5
    data = data_sets.read(source, settings_of(part(source, "ranking", "bm25"), source).text)
    assert found["counts"]["test: queries over the limit"] == len(data.split().questions_of("test")) - 5
    assert found["counts"]["train: pairs over the limit"] > 0


def test_samples_are_not_the_first_ones() -> None:
    queries = {key: {key + 1} for key in range(0, 2_000, 2)}
    kept = some_queries(queries, 200)
    assert len(kept) == 200
    assert 900 < np.mean(list(kept)) < 1_100
    assert some_queries(dict(reversed(queries.items())), 200) == kept
    assert [len(evenly(np.arange(rows), 500)) for rows in (10, 500, 999, 1_001)] == [10, 500, 500, 500]
    assert evenly(np.arange(999), 500)[[0, -1]].tolist() == [0, 998]


def test_a_network_is_trained_and_the_same_again(source: Source) -> None:
    changes = ("encoder.units=10", "word_vectors.dimensions=10", "word_vectors.epochs=1", "training.epochs=2")
    found, again = (measured(source, "pairs", f"{PRESET}bogdanova-sum", *changes) for _ in range(2))
    assert [row["epoch"] for row in found["curve"]] == [0, 1, 2]
    assert {**found, "seconds": 0} == {**again, "seconds": 0}


def test_ten_candidates_hold_what_is_known_first_as_the_engine_ranks_them(source: Source) -> None:
    one = part(source, "candidates", "bm25")
    data = data_sets.read(source, settings_of(one, source).text)
    parts = parts_of(data, limits_of(one))
    for query, keys, relevant in candidates_of(source, limits_of(one)):
        known = parts.test_queries[query]
        assert len(set(keys.tolist())) == len(keys) <= 10
        assert query not in keys
        assert relevant.sum() == min(5, len(known))
        assert set(keys[relevant].tolist()) <= known
        assert not known & set(keys[~relevant].tolist())
    found = measured(source, "candidates", "bm25")
    assert 0 < found["values"]["map"] <= 1


def test_systems_that_read_differently_rank_the_same_candidates(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked = []

    def watched(candidates: list, *rest: object) -> list:
        ranked.append([(query, keys.tolist(), relevant.tolist()) for query, keys, relevant in candidates])
        return reranked(candidates, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "reranked", watched)
    for changes in ((), ("text.fields=title",)):
        measured(source, "candidates", "bm25", *changes)
    assert ranked[0] == ranked[1]


def test_lent_vectors_are_the_others_where_it_has_the_word(source: Source) -> None:
    one = part(source, "pairs", f"{PRESET}bogdanova-sum", "word_vectors.dimensions=5", "word_vectors.epochs=1")
    settings = settings_of(one, source)
    questions = data_sets.read(source, settings.text).collection
    own = word_vectors.learned(questions, settings)
    other = WordVectors([own.words[3], "elsewhere"], np.arange(32, dtype=np.float32).reshape(4, 8), {})
    lent = word_vectors.lent(questions, settings, other)
    assert lent.words == own.words
    assert lent.table[FIRST_WORD + 3].tolist() == other.table[FIRST_WORD].tolist()
    rest = np.delete(lent.table[FIRST_WORD:], 3, axis=0)
    assert rest.std() == pytest.approx(other.table[FIRST_WORD:].std(), rel=0.1)


def test_whose_words_and_whose_text(source: Source) -> None:
    def of(vectors: str, trained_on: str) -> VectorSource:
        return source_of(Part("a", "b", "pairs", "svm", (), (), vectors, trained_on, 0, True))  # type: ignore[arg-type]

    assert of("own", "own") == VectorSource("a", "a")
    assert of("other", "own") == VectorSource("a", "b")
    assert of("own", "other") == VectorSource("a", "a")
    assert of("other", "other") == VectorSource("b", "b")
