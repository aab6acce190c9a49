"""Duplicates in a list of texts, by hand and against slow twins."""

import csv
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sentence_stand_in
from oracles.slow_shingles import slow_hashes

import dupq
from dupq.api.result import Duplicates
from dupq.clusters import reranking
from dupq.encoders.sentence_models import DEFAULT
from dupq.errors import DupqError
from dupq.near_duplicates.pairing import near_pairs
from dupq.settings.sections import NearDuplicateSettings
from dupq.text.keys import sample_by_hash
from dupq.text.questions import content_hashes
from dupq.text.title_intent import TitleComparer

PAIRS = Path(__file__).parent.parent / "text" / "title_pairs.tsv"
JOINED = ("left", "right", "source", "joined")
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


TEXTS = [title or "" for title in TITLES]


def by_ends(found: Duplicates) -> dict[tuple[int, int], dict[str, Any]]:
    """The encoder's pairs, the likeliest first."""
    rows = found.pairs.arrow(filter=[("source", "=", "encoder")]).to_pylist()
    return {(row["left"], row["right"]): row for row in rows}


def test_copies_and_rephrasings_are_found(found) -> None:
    assert [0, 2] in [sorted({0, 2} & set(group)) for group in found.groups()]
    sources = {(row["left"], row["right"]): row["source"] for row in found.pairs.arrow().to_pylist()}
    assert sources[0, 2] == "near_duplicate"  # case and question mark are others
    assert {*list(by_ends(found))[:2]} == {(0, 3), (5, 6)}
    assert "oven" in by_ends(found)[0, 3]["title_left"]


@pytest.mark.parametrize(("column", "fewest", "most"), [("other", 0, 3), ("copy", 57, 60)])
def test_a_sign_a_unit_or_a_small_word_parts_titles_and_ends_and_politeness_do_not(
    column: str, fewest: int, most: int
) -> None:
    rows = pd.read_csv(PAIRS, sep="\t", quoting=csv.QUOTE_NONE)
    titles = [*rows["title"], *rows[column], *filter(None, TITLES)]
    pairs = dupq.find_duplicates(titles, reranker="none", language="english").pairs.arrow([*JOINED])
    joined = [row for row in pairs.to_pylist() if row["joined"] and row["right"] - row["left"] == len(rows)]
    assert fewest <= len(joined) <= most
    assert column == "copy" or {row["source"] for row in joined} <= {"encoder"}


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
    assert not {row[side] for row in pairs.to_pylist() for side in ("left", "right")} & {4, 10}  # without a word


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


def test_the_answer_says_what_was_found_and_which_columns_were_not_read() -> None:
    table = {"title": TITLES, "note": ["x"] * len(TITLES), "votes": [1] * len(TITLES)}
    said = repr(dupq.find_duplicates(table, threshold=0.5)).splitlines()
    assert said[0].endswith("to keep; read title; not read note; no reranker has read likely pairs")
    assert said[1] == "  1.000  How do I bake bread without an oven?  =  how do i bake bread without an oven"
    shown = dupq.find_duplicates(["<b>bread</b> oven", "<b>bread</b> oven"])._repr_html_()
    assert "&lt;b&gt;bread&lt;/b&gt; oven" in shown
    assert "<b>" not in shown


def test_a_function_or_its_vectors_are_an_encoder() -> None:
    def encode(texts: list[str]) -> np.ndarray:
        assert texts == TEXTS
        return np.stack([sentence_stand_in.counted(text.lower()) for text in texts]) * 7

    found = dupq.find_duplicates(TITLES, encoder=encode, k=3)
    assert found.encoder is encode
    for ends, row in by_ends(found).items():
        one, other = (sentence_stand_in.unit(TEXTS[end].lower()).astype(float) for end in ends)
        assert row["similarity"] == pytest.approx(one @ other, abs=2e-3)
        assert not {*ends} & {4, 10}  # texts without a word
    vectors = encode(TEXTS)
    assert dupq.find_duplicates(TITLES, encoder=vectors, k=3).pairs.arrow().equals(found.pairs.arrow())
    with pytest.raises(DupqError, match=r"an array of shape \(2, 64\), but 11 texts"):
        dupq.find_duplicates(TITLES, encoder=vectors[:2])


def test_one_text_has_no_duplicates() -> None:
    assert dupq.find_duplicates(["How do I bake bread?"]).groups() == []


def test_the_prior_of_titles_is_for_texts_without_bodies(found) -> None:
    for body in ("", "<p><img></p>"):
        alone = dupq.find_duplicates({"title": TEXTS, "body": [body] * len(TEXTS)})
        assert alone.pairs.arrow().equals(found.pairs.arrow())
    bodies = [""] * 3 + ["For breakfast."] + [""] * (len(TEXTS) - 4)
    every = (found, dupq.find_duplicates({"title": TEXTS, "body": bodies}))
    likely = [next(iter(by_ends(some).values()))["probability"] for some in every]
    assert likely[0] > 1.5 * likely[1]


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


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for a reranker."""
    sentence_stand_in.install(monkeypatch)
    return sentence_stand_in.write_model(tmp_path / "model")


ONES = [row for row in range(len(TITLES)) if row != 2]  # a near duplicate of 0
SAID = [row for row in ONES if TEXTS[row]]


def test_a_reranker_reads_a_short_list_whole_and_finds_pairs_of_its_own(model: Path) -> None:
    without, found = dupq.find_duplicates(TITLES, k=2), dupq.find_duplicates(TITLES, k=2, reranker=model)
    assert without.pairs.arrow()["reranker"].null_count == len(without.pairs)
    assert (without.reranker, found.reranker) == (None, str(model))
    assert "no reranker has read likely pairs" in repr(without)
    assert f"likely pairs read by {model}" in repr(found)
    assert [TEXTS[row] for row in SAID] == sentence_stand_in.READ
    before, after = by_ends(without), by_ends(found)
    vectors = {row: sentence_stand_in.unit(TEXTS[row]).astype(float) for row in SAID}
    surely, near = set(before), set(before)
    for row in SAID:
        cosines = {other: float(vectors[row] @ vectors[other]) for other in SAID if other != row}
        fifth = sorted(cosines.values(), reverse=True)[4]
        surely |= {(min(row, other), max(row, other)) for other, one in cosines.items() if one > fifth + 1e-3}
        near |= {(min(row, other), max(row, other)) for other, one in cosines.items() if one >= fifth - 1e-3}
    assert surely <= after.keys() <= near
    assert len(after) > len(before)
    for (left, right), row in after.items():
        assert row["reranker"] == pytest.approx(vectors[left] @ vectors[right], abs=2e-3)
    assert any(after[ends]["probability"] != row["probability"] for ends, row in before.items())
    (near_pair,) = found.pairs.arrow(filter=[("source", "!=", "encoder")]).to_pylist()
    assert near_pair["reranker"] is None


def test_of_a_long_list_a_reranker_reads_likely_pairs_and_a_sample(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WHOLE": 8, "PAIRS": 3, "SAMPLE": 2}.items():
        monkeypatch.setattr(reranking, name, value)
    before, found = by_ends(dupq.find_duplicates(TITLES)), by_ends(dupq.find_duplicates(TITLES, reranker=model))
    likeliest = sorted(before, key=lambda ends: -before[ends]["probability"])[:3]
    wanted = {row for ends in likeliest for row in ends} | set(sample_by_hash(np.array(ONES), 2).tolist())
    assert [TEXTS[row] for row in sorted(wanted & set(SAID))] == sentence_stand_in.READ
    assert len(wanted) < len(ONES)
    assert found.keys() == before.keys()
    for ends, row in found.items():
        assert (row["reranker"] is not None) is ({*ends} <= wanted)
        assert row["reranker"] is not None or row["probability"] == before[ends]["probability"]


def test_the_bodies_are_read_too(model: Path) -> None:
    bodies = [f"<p>about {row}</p>" for row in range(4)]
    dupq.find_duplicates({"title": TEXTS[:4], "body_html": bodies}, reranker=str(model))
    assert [f"{TEXTS[row]} about {row}" for row in range(4)] == sentence_stand_in.READ


@pytest.mark.parametrize("given", [None, "none", "auto"])
def test_a_list_is_read_by_no_reranker_on_demand_or_where_none_is_installed(given: str | None, model: Path) -> None:
    found = dupq.find_duplicates(TITLES, reranker=given)
    assert found.reranker is None
    assert sentence_stand_in.READ == []


def test_an_encoder_that_is_named_as_a_model_reads_likely_pairs_too(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sentence_stand_in.install(monkeypatch, {"some/model": model})
    found = dupq.find_duplicates(TITLES, encoder="some/model", k=3)
    assert found.reranker == "some/model"
    for (left, right), row in by_ends(found).items():
        assert row["similarity"] == pytest.approx(row["reranker"], abs=2e-3)
        assert not {left, right} & {4, 10}  # without a word
    other = sentence_stand_in.write_model(tmp_path / "other")
    assert dupq.find_duplicates(TITLES, encoder="some/model", reranker=other).reranker == str(other)
    assert dupq.find_duplicates(TITLES, encoder="some/model", reranker=None).reranker is None


def test_texts_in_a_language_that_the_reranker_does_not_know_are_not_read(tmp_path: Path, model: Path) -> None:
    english = sentence_stand_in.write_model(tmp_path / "all-MiniLM-L12-v2")
    given = ["Wie backe ich ein Brot ohne Ofen?", "Wo ist mein Fahrrad?", "Was ist die Hauptstadt der Mongolei?"]
    assert dupq.find_duplicates(given, language="german", reranker=english).reranker is None
    assert sentence_stand_in.READ == []
    assert dupq.find_duplicates(given, language="german", reranker=model).reranker == str(model)
    assert given == sentence_stand_in.READ


@pytest.mark.reads
def test_the_default_reranker_tells_questions_that_mean_the_same_from_those_that_share_words() -> None:
    given = [
        "How can I lose weight quickly?",
        "What is the fastest way to slim down?",
        "How can I lose my accent quickly?",
        "Why is the sky blue?",
        "What makes the sky look blue?",
        "Why is the sea salty?",
    ]
    found = dupq.find_duplicates(given)
    assert found.reranker == DEFAULT
    read = by_ends(found)
    same, other = [(0, 1), (3, 4)], [(0, 2), (3, 5), (1, 2)]
    for measure in ("reranker", "probability"):
        assert min(read[ends][measure] for ends in same) > max(read[ends][measure] for ends in other)
    without = by_ends(dupq.find_duplicates(given, reranker=None))
    assert without[0, 2]["probability"] > without[0, 1]["probability"]  # by their words alone
