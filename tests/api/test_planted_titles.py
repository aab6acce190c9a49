"""Variants of every kind planted among 1,000 real titles (`benchmarks/titles.py`)."""

import pytest

from benchmarks import titles

pytestmark = pytest.mark.realdata


def test_copies_and_typing_errors_are_near_duplicates_and_no_other_variants_are(shared_data, monkeypatch) -> None:
    monkeypatch.setattr(titles, "SHARED", shared_data)
    table = titles.summed(titles.rows_of(*titles.plant(1_000, 30)))
    assert {kind for kind in titles.OTHER if table[kind]["by words"]} == set()
    assert table["copy, white space"]["by words"] == table["copy, case and quotes"]["by words"] == 30
    assert table["typing error"]["by words"] >= 25
    assert all(row["planted"] == row["found"] == 30 for row in table.values())
