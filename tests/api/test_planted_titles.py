"""Variants of every kind planted among 1,000 real titles (`benchmarks/titles.py`)."""

import pytest

from benchmarks import titles

pytestmark = pytest.mark.realdata


def test_what_becomes_of_variants_of_every_kind(shared_data, monkeypatch) -> None:
    monkeypatch.setattr(titles, "SHARED", shared_data)
    table = titles.summed(titles.rows_of(*titles.plant(1_000, 30)))
    assert {kind for kind in titles.OTHER if table[kind]["by words"]} == set()
    assert table["copy, white space"]["by words"] == table["copy, case and quotes"]["by words"] == 30
    assert table["typing error"]["by words"] >= 25
    assert all(table[kind]["joined"] == 30 for kind in titles.SAME - {"typing error"})
    assert table["typing error"]["joined"] >= 29  # a title of few words is another one
    joined = {kind: table[kind]["joined"] for kind in titles.OTHER - {"word in front", "word behind"}}
    assert joined.pop("swapped words") <= 1  # "an airline which is", "an which airline is"
    assert not any(joined.values())
    assert all(table[kind]["ranked first"] >= 15 for kind in titles.PARAPHRASED)
    assert all(row["planted"] == row["found"] for row in table.values())
