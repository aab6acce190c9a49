"""Parts of the papers' tables as tasks: what is computed once, and what is computed anew."""

from dataclasses import replace
from pathlib import Path

import pytest
from trained import TrainedSample

from dupq.errors import DupqError
from dupq_papers import steps
from dupq_papers.experiments import measuring
from dupq_papers.experiments.rows import Part
from dupq_papers.experiments.sources import sites_of
from dupq_papers.steps import VERSIONS, Work, measure_parts, opened, place_of, result_of


def part(data: str, pairs: int) -> Part:
    return Part(data, None, "pairs", "shingles 1", (), (), "own", "own", pairs, False)


def test_numbers_of_pairs_that_the_data_set_has_not_are_computed_once(
    trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sites_of(trained_sample.questions, trained_sample.links).sources[0]
    work, computed, measure = opened(str(tmp_path), [source]), [], measuring.measure

    def watched(one: Part, *rest: object) -> object:
        computed.append(one.pairs)
        return measure(one, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "measure", watched)
    parts = [part(source.name, pairs) for pairs in (20, 50_000, 100_000, 0)]
    measure_parts(parts, work)
    few, *all_ = (result_of(one, work) for one in parts)
    assert len(computed) == 2
    assert few["sizes"]["training_pairs"] == 40
    assert all(one == all_[0] for one in all_)
    measure_parts(parts, opened(str(tmp_path), [source]))
    assert len(computed) == 2


def test_a_part_is_made_anew_when_what_makes_it_is_another_version(
    trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sites_of(trained_sample.questions, trained_sample.links).sources[0]
    work = Work(str(tmp_path), {source.name: source}, {source.name: 100})
    before = place_of(part(source.name, 20), work)
    assert place_of(part(source.name, 20), work) == before
    for name in ("paper_parts", "texts", "prepare", "fit"):
        monkeypatch.setitem(VERSIONS, name, 100)
        assert place_of(part(source.name, 20), work) != before
        monkeypatch.undo()


def test_a_part_that_goes_on_from_the_base_is_made_anew_when_another_base_ships(
    trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sites_of(trained_sample.questions, trained_sample.links).sources[0]
    work = Work(str(tmp_path), {source.name: source}, {source.name: 100})
    parts = [replace(part(source.name, 20), system=name) for name in ("preset dupq", "bm25")]
    before = [place_of(one, work) for one in parts]
    monkeypatch.setattr(steps, "base_fingerprint", lambda: "another")
    assert [place_of(one, work) == place for one, place in zip(parts, before, strict=True)] == [False, True]


def test_a_result_that_was_cut_is_computed_again(trained_sample: TrainedSample, tmp_path: Path) -> None:
    source = sites_of(trained_sample.questions, trained_sample.links).sources[0]
    work, one = opened(str(tmp_path), [source]), part(source.name, 20)
    measure_parts([one], work)
    whole = result_of(one, work)
    Path(place_of(one, work)).write_text("{}")
    measure_parts([one], work)
    assert {**result_of(one, work), "seconds": 0} == {**whole, "seconds": 0}


def test_an_error_names_the_system_and_the_data_set(
    trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise DupqError("no questions to draw from", 5)

    monkeypatch.setattr(measuring, "measure", fails)
    source = sites_of(trained_sample.questions, trained_sample.links).sources[0]
    with pytest.raises(DupqError, match=f"^shingles 1 on {source.name}: no questions to draw from$") as raised:
        measure_parts([part(source.name, 20)], opened(str(tmp_path), [source]))
    assert raised.value.exit_code == 5
