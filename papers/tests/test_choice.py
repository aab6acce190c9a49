"""Which tables are measured on which data sets."""

from dupq_papers.experiments.catalogue import TABLES
from dupq_papers.experiments.choice import not_measured, other_of, shown
from dupq_papers.experiments.sources import Source


def source(name: str, kind: str = "site", language: str = "english") -> Source:
    return Source(name, kind, (), language, "")  # type: ignore[arg-type]


SITES = [source("a"), source("b")]
EVERY = [*SITES, source("qatar", "semeval"), source("arabic", "pairs", "arabic")]


def test_the_other_data_set_is_of_the_same_kind() -> None:
    assert [other_of(one, EVERY) for one in EVERY] == ["b", "a", None, None]
    assert other_of(SITES[0], [SITES[0], source("qatar", "semeval")]) is None


def test_what_no_data_set_is_for_is_told_with_what_it_needs() -> None:
    assert not_measured(list(TABLES), EVERY) == []
    assert not_measured(list(TABLES), SITES) == ["othman-4 (needs an Arabic --pair-set)"]
    arabic = not_measured(list(TABLES), EVERY[-1:])
    assert "hazem-1 (needs a site with more known duplicates, or SemEval's files as --pair-set)" in arabic
    assert "dos-santos-4 (needs a site with more known duplicates)" in arabic
    assert "othman-4" not in " ".join(arabic)


def test_tables_with_bodies_are_of_sites_and_candidates_of_semeval_if_it_is_there() -> None:
    found = {(one.table.name, one.source.name) for one in shown(list(TABLES), EVERY, is_quick=True)}
    assert {data for table, data in found if table == "dos-santos-4"} == {"a", "b"}
    assert {data for table, data in found if table == "hazem-1"} == {"qatar"}
    alone = {(one.table.name, one.source.name) for one in shown(list(TABLES), SITES, is_quick=True)}
    assert {data for table, data in alone if table == "hazem-1"} == {"a", "b"}
