"""Duplicates in a list of texts, by hand and against slow twins."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sentence_stand_in
from oracles.slow_shingles import slow_hashes

import dupq
from dupq.api.duplicates import Duplicates, compare
from dupq.clusters.calibration import features_of, read_prior
from dupq.clusters.decision import scored_table
from dupq.encoders.sentence_models import FLOOR
from dupq.errors import DupqError, SettingError
from dupq.near_duplicates.asking import TitleComparer
from dupq.near_duplicates.pairing import near_pairs
from dupq.settings.sections import NearDuplicateSettings
from dupq.text.questions import content_hashes

TITLES = [
    "How do I bake bread without an oven?",
    "What is the capital of Mongolia?",
    "how do i bake bread without an oven",
    "Is it possible to bake bread without having an oven at home?",
    "",
    "Why does my bicycle chain fall off when I change gears?",
    "My bicycle chain falls off whenever I change gears, why?",
    "How many moons does Jupiter have?",
    "Which language should I learn first as a programmer?",
    "Can I grow tomatoes indoors in winter?",
    None,
]


@pytest.fixture(scope="module")
def found() -> Duplicates:
    return dupq.find_duplicates(TITLES, threshold=0.5)


def test_copies_and_rephrasings_are_found(found) -> None:
    assert [0, 2] in [sorted({0, 2} & set(group)) for group in found.groups()]
    sources = {(row["left"], row["right"]): row["source"] for row in found.pairs.arrow().to_pylist()}
    assert sources[0, 2] == "near_duplicate"  # case and question mark are others
    best = found.pairs.arrow(filter=[("source", "=", "encoder")]).to_pylist()[:2]
    assert {(row["left"], row["right"]) for row in best} == {(0, 3), (5, 6)}
    assert "oven" in best[0]["title_left"] + best[1]["title_left"]


def test_every_text_has_one_row_and_pairs_are_in_order(found) -> None:
    clusters = found.clusters.arrow()
    assert clusters["row"].to_pylist() == list(range(len(TITLES)))
    labels, sizes = clusters["cluster"].to_pylist(), clusters["cluster_size"].to_pylist()
    assert sizes == [labels.count(label) for label in labels]
    pairs = found.pairs.arrow()
    assert all(left < right for left, right in zip(*(pairs[s].to_pylist() for s in ("left", "right")), strict=True))
    probabilities = pairs["probability"].to_pylist()
    assert probabilities == sorted(probabilities, reverse=True)
    joined = [labels[row["left"]] == labels[row["right"]] for row in pairs.to_pylist()]
    assert pairs["joined"].to_pylist() == joined


def test_a_text_without_words_has_no_duplicates(found) -> None:
    ends = {row[side] for row in found.pairs.arrow().to_pylist() for side in ("left", "right")}
    assert not ends & {4, 10}


@pytest.mark.parametrize(
    "given",
    [
        pd.Series(TITLES),
        pa.array(TITLES),
        pa.chunked_array([TITLES[:3], TITLES[3:]]),
        pd.DataFrame({"title": TITLES}),
        pa.table({"title": TITLES}),
        {"title": TITLES},
    ],
    ids=lambda given: type(given).__name__,
)
def test_any_column_or_table_gives_the_same(given, found) -> None:
    again = dupq.find_duplicates(given, threshold=0.5)
    assert again.pairs.arrow().equals(found.pairs.arrow())
    assert again.clusters.arrow().equals(found.clusters.arrow())


def test_bodies_are_read_as_text_or_as_html() -> None:
    titles = [title or "nothing" for title in TITLES]
    bodies = [f"{title} I want to know if a < b & c." for title in titles]
    plain = dupq.find_duplicates({"title": titles, "body": bodies}, threshold=0.5)
    escaped = [body.replace("&", "&amp;").replace("<", "&lt;") for body in bodies]
    as_html = dupq.find_duplicates({"title": titles, "body_html": [f"<p>{b}</p>" for b in escaped]}, threshold=0.5)
    assert plain.pairs.arrow().equals(as_html.pairs.arrow())


def test_a_saved_encoder_is_used(small_runs) -> None:
    given = dupq.find_duplicates(TITLES, encoder=f"{small_runs.folder}/encoder", threshold=0.5)
    loaded = dupq.load_encoder(f"{small_runs.folder}/encoder")
    assert given.encoder.dimensions == loaded.dimensions
    assert dupq.find_duplicates(TITLES, encoder=loaded, threshold=0.5).pairs.arrow().equals(given.pairs.arrow())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("one text", "is one text"),
        ([], "none of the 0 texts has a word"),
        (["", None], "none of the 2 texts has a word"),
        (["a", 3], "row 1 of texts is int"),
        ({"name": ["a"]}, "no column 'title'; it has name"),
        ({"title": ["a"], "body": []}, "1 titles, but 0 bodies"),
    ],
)
def test_what_is_no_list_of_texts_is_an_error(given, said: str) -> None:
    with pytest.raises(DupqError, match=said):
        dupq.find_duplicates(given)


IDS = [f"K-{number}" for number in range(len(TITLES))]


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"title": TITLES, "id": IDS}),
        pd.Series(TITLES, index=IDS),
        pa.table({"id": IDS, "question": TITLES}),
        [{"id": name, "headline": title} for name, title in zip(IDS, TITLES, strict=True)],
    ],
    ids=["column", "index", "arrow", "records"],
)
def test_texts_are_named_by_their_ids(given, found) -> None:
    again = dupq.find_duplicates(given, threshold=0.5)
    assert again.groups() == [[IDS[row] for row in rows] for rows in found.groups()]
    ends = [again.pairs.arrow([side])[side].to_pylist() for side in ("left", "right")]
    rows = [found.pairs.arrow([side])[side].to_pylist() for side in ("left", "right")]
    assert ends == [[IDS[row] for row in side] for side in rows]


def test_what_is_kept_and_dropped_is_all_and_no_two_kept_ones_are_duplicates(found) -> None:
    assert sorted([*found.keep(), *found.drop()]) == list(range(len(TITLES)))
    assert found.drop() == sorted(row for rows in found.groups() for row in rows[1:])
    assert 2 in found.drop()


def test_ids_that_name_two_texts_are_refused() -> None:
    with pytest.raises(DupqError, match="the id 7 names more than one text"):
        dupq.find_duplicates({"id": [7, 7], "title": ["one", "two"]})
    with pytest.raises(DupqError, match="the id nan names more than one text; ids must be there"):
        dupq.find_duplicates(pd.DataFrame({"id": [1, None], "title": ["one", "two"]}))
    with pytest.raises(DupqError, match="the id None names more than one text; ids must be there"):
        dupq.find_duplicates({"id": ["a", None], "title": ["one", "two"]})
    assert dupq.find_duplicates({"id": ["nan", "None"], "title": ["one", "two"]}).keep() == ["nan", "None"]


def test_the_answer_says_what_was_found_and_which_columns_were_not_read() -> None:
    table = {"title": TITLES, "note": ["x"] * len(TITLES), "votes": [1] * len(TITLES)}
    said = repr(dupq.find_duplicates(table, threshold=0.5)).splitlines()
    assert said[0].endswith("to keep; read title; not read note")
    assert said[1] == "  1.000  How do I bake bread without an oven?  =  how do i bake bread without an oven"
    shown = dupq.find_duplicates(["<b>bread</b> oven", "<b>bread</b> oven"])._repr_html_()
    assert "&lt;b&gt;bread&lt;/b&gt; oven" in shown
    assert "<b>" not in shown


def test_vectors_are_an_encoder() -> None:
    generator = np.random.default_rng(1)
    vectors = generator.normal(size=(len(TITLES), 16)).astype(np.float32)
    by_array = dupq.find_duplicates(TITLES, encoder=vectors)
    assert by_array.pairs.arrow().equals(dupq.find_duplicates(TITLES, encoder=lambda texts: vectors).pairs.arrow())
    with pytest.raises(DupqError, match="an array of 2 rows, but 11 texts"):
        dupq.find_duplicates(TITLES, encoder=vectors[:2])


def test_wrong_numbers_are_named() -> None:
    with pytest.raises(SettingError, match=r"neighbours\.k"):
        dupq.find_duplicates(TITLES, k=0)
    with pytest.raises(SettingError, match="threshold=2"):
        dupq.find_duplicates(TITLES, threshold=2)


def test_one_text_has_no_duplicates() -> None:
    assert dupq.find_duplicates(["How do I bake bread?"]).groups() == []


OTHERS = [
    ("How do I convert a float to a string?", "How do I convert a string to a float?"),
    ("Sorting a list in Python 2", "Sorting a list in Python 3"),
    ("Can I bake bread with an oven?", "Can I bake bread without an oven?"),
    ("Is a graph of degree three planar?", "Is a graph of degree four planar?"),
    ("What does a < b mean for pointers?", "What does a > b mean for pointers?"),
    ("Which garbage collector does C++ have?", "Which garbage collector does C# have?"),
]


def test_titles_that_say_they_differ_are_not_joined_and_typing_errors_are() -> None:
    titles = [title for pair in OTHERS for title in pair] + [
        "What does a recursive descent parser do with comments?",
        "What does a recursive descent pagser do with comments?",
        *filter(None, TITLES),
    ]
    found = dupq.find_duplicates(titles)
    assert found.groups() == [[12, 13], [14, 16]]  # and a copy
    probabilities = {
        (row["left"], row["right"]): row["probability"]
        for row in found.pairs.arrow(filter=[("source", "=", "encoder")]).to_pylist()
    }
    assert max(probabilities[2 * pair, 2 * pair + 1] for pair in range(len(OTHERS))) < 0.5


def test_the_prior_of_titles_is_for_texts_without_bodies(found) -> None:
    titles = [title or "" for title in TITLES]
    for body in ("", "<p><img></p>"):
        alone = dupq.find_duplicates({"title": titles, "body": [body] * len(titles)})
        assert alone.pairs.arrow().equals(found.pairs.arrow())
    bodies = [""] * 3 + ["For breakfast."] + [""] * (len(titles) - 4)
    likely = [
        some.pairs.arrow(["probability"], [("source", "=", "encoder")])["probability"].to_pylist()[0]
        for some in (found, dupq.find_duplicates({"title": titles, "body": bodies}))
    ]
    assert likely[0] > 1.5 * likely[1]


def test_a_function_encodes_the_texts() -> None:
    def encode(texts: list[str]) -> np.ndarray:
        assert texts == [title or "" for title in TITLES]
        return np.stack([sentence_stand_in.counted(text.lower()) for text in texts]) * 7

    found = dupq.find_duplicates(TITLES, encoder=encode, k=3)
    assert found.encoder is encode
    for row in found.pairs.arrow(filter=[("source", "=", "encoder")]).to_pylist():
        one, other = (
            sentence_stand_in.unit(str(TITLES[row[side]]).lower()).astype(float) for side in ("left", "right")
        )
        assert row["similarity"] == pytest.approx(one @ other, abs=2e-3)
    ends = {row[side] for row in found.pairs.arrow().to_pylist() for side in ("left", "right")}
    assert not ends & {4, 10}  # texts without a word


def test_near_pairs_are_those_of_comparing_all() -> None:
    generator = np.random.default_rng(3)
    words = [f"word{number}" for number in range(400)]
    texts = [" ".join(generator.choice(words, 40)) for _ in range(30)]
    for source in range(0, 30, 2):
        changed = texts[source].split(" ")
        changed[int(generator.integers(40))] = "other"
        texts.append(" ".join(changed))
    texts += [texts[0], texts[5], ""]
    settings, column, none = NearDuplicateSettings(), pa.array(texts), pa.array([""] * len(texts))
    comparer = TitleComparer("english", lambda word: True)
    table = pa.table({"title": none, "text": column})
    near = near_pairs(table, none, content_hashes(none, column), settings, comparer).to_pylist()
    found = {(row["left"], row["right"]) for row in near if row["source"] == "near_duplicate"}
    sets = [set(slow_hashes(text, settings.shingle_size)) for text in texts]
    expected = {
        (i, j)
        for i, j in combinations(range(len(texts) - 3), 2)
        if len(sets[i] & sets[j]) >= settings.threshold * len(sets[i] | sets[j]) > 0
    }
    assert found == expected
    assert [(row["left"], row["right"]) for row in near if row["source"] == "exact"] == [(0, 45), (5, 46)]


def test_a_teacher_reads_what_is_in_likely_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence_stand_in.install(monkeypatch)
    model = sentence_stand_in.write_model(tmp_path / "model")
    without = dupq.find_duplicates(TITLES).pairs.arrow()
    pairs = dupq.find_duplicates(TITLES, teacher=model).pairs.arrow()
    assert without["teacher"].null_count == len(without)
    read = set()
    for row in pairs.to_pylist():
        if row["source"] == "encoder" and row["probability"] >= FLOOR:
            ends = [str(TITLES[row[side]]) for side in ("left", "right")]
            read |= set(ends)
            one, other = (sentence_stand_in.unit(text).astype(float) for text in ends)
            assert row["teacher"] == pytest.approx(one @ other, abs=2e-3)
        else:
            assert row["teacher"] is None
    assert sorted(read) == sorted(sentence_stand_in.READ)
    assert 2 < len(read) < len(TITLES)
    with pytest.raises(DupqError, match=r"^find_duplicates: teacher=nowhere: neither the folder"):
        dupq.find_duplicates(TITLES, teacher="nowhere")


def test_a_prior_is_learned_from_the_evidence_that_makes_the_probabilities() -> None:
    """What benchmarks/prior.py reads."""
    titles = [f"How do I {verb} a {thing}?" for verb in ("bake", "paint", "sell") for thing in ("cake", "boat", "door")]
    compared = compare(titles, [f"<p>{title} Please help.</p>" for title in titles], None, "english", 4)
    evidence, around, scale = compared.evidence, compared.around, compared.scale
    assert len(evidence) > 10
    found = read_prior().model.probabilities(features_of(evidence, around, scale.reference, scale.k))
    assert found.astype(np.float32) == pytest.approx(scored_table(evidence, around, scale)["probability"].to_numpy())
