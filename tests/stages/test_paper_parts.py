"""Parts of the papers' tables as tasks: what is computed once, and what is computed anew."""

from pathlib import Path

import pytest
from trained import TrainedSample

from dupq.evaluation.papers import measuring
from dupq.evaluation.papers.rows import Part
from dupq.evaluation.papers.sources import sites_of
from dupq.stages.papers import Work, measure_parts, result_of


def part(data: str, pairs: int) -> Part:
    return Part(data, None, "pairs", "shingles 1", (), (), "own", "own", pairs, False)


def test_numbers_of_pairs_that_the_data_set_has_not_are_computed_once(
    trained_sample: TrainedSample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sites_of(trained_sample.questions, trained_sample.links).sources[0]
    work, computed, measure = Work(str(tmp_path), {source.name: source}), [], measuring.measure

    def watched(one: Part, *rest: object) -> object:
        computed.append(one.pairs)
        return measure(one, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "measure", watched)
    parts = [part(source.name, pairs) for pairs in (20, 50_000, 100_000, 0)]
    measure_parts(parts, work)
    few, *all_ = (result_of(one, work) for one in parts)
    assert computed == [20, 50_000]
    assert few["sizes"]["training_pairs"] == 40
    assert all(one == all_[0] for one in all_)
    measure_parts(parts, work)
    assert len(computed) == 2
